"""`completion`: what a shell reads to complete commands, options and the names of runs."""

import click
from click.shell_completion import get_completion_class

from cumulo.cli.main import cumulo

_HOW = {
    "bash": 'add to ~/.bashrc: eval "$(cumulo completion bash)"',
    "zsh": 'add to ~/.zshrc: eval "$(cumulo completion zsh)"',
    "fish": "write to ~/.config/fish/completions/cumulo.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_HOW)))
def completion_command(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash  eval "$(cumulo completion bash)"    in ~/.bashrc
    zsh   eval "$(cumulo completion zsh)"     in ~/.zshrc
    fish  cumulo completion fish > ~/.config/fish/completions/cumulo.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"Click knows no completion for {shell}")
    click.echo(f"# {_HOW[shell]}")
    click.echo(found(cumulo, {}, "cumulo", "_CUMULO_COMPLETE").source())
