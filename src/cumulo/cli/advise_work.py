"""`advise`'s kinds of work: what each is asked, and as what it goes to the server."""

import sys
from typing import Any

import click

from cumulo.cli.advise_amounts import AMOUNT, TIME, TOKENS, WHOLE
from cumulo.cli.advise_options import given, with_limits, with_model
from cumulo.client import run_file


@click.command("train")
@with_limits
@with_model
@click.option("--method", type=click.Choice(["full", "lora", "qlora"]), help="How; full if left out.")
@click.option("--tokens", type=AMOUNT, metavar="N", help="Tokens to train on, epochs included: 2B.")
@click.option("--seq", type=TOKENS, metavar="N", help="Tokens of a sequence; 4096 if left out.")
@click.option("--precision", type=click.Choice(["fp32", "tf32", "fp16", "bf16", "fp8"]), help="Of the products.")
@click.option(
    "--optimizer",
    type=click.Choice(["adamw", "adamw-bf16", "adamw-8bit", "paged-8bit", "adamw-host", "sgd"]),
    help="Which.",
)
@click.option("--global-batch", type=WHOLE, metavar="N", help="Sequences in a step.")
@click.option("--micro-batch", type=WHOLE, metavar="N", help="Sequences on a GPU at once; the most that fit.")
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]), help="Of activations; as needed.")
@click.option("--rank", type=WHOLE, metavar="N", help="Of LoRA's matrices; 16 if left out.")
def train_command(which: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Advise on training a language model, in full or with LoRA."""
    return {"train": {**which, **given(**options)}}


@click.command("serve")
@with_limits
@with_model
@click.option("--context", type=TOKENS, metavar="N", help="Tokens of a request, its answer included: 8k.")
@click.option("--prompt", type=TOKENS, metavar="N", help="Of these the prompt; three quarters if left out.")
@click.option("--users", type=WHOLE, metavar="N", help="Requests in flight at once; as many as fit if left out.")
@click.option("--ttft", "ttft_s", type=TIME, metavar="TIME", help="To the first token, at most: 500ms.")
@click.option("--tpot", "tpot_s", type=TIME, metavar="TIME", help="For each further token, at most: 40ms.")
@click.option("--precision", metavar="LIST", help="Of the weights, each tried: bf16, fp8, fp4, int8, int4.")
def serve_command(which: dict[str, Any], precision: str | None, **options: Any) -> dict[str, Any]:
    """Advise on serving a language model."""
    precisions = [each.strip().lower() for each in precision.split(",")] if precision else None
    return {"serve": {**which, **given(**options, precisions=precisions)}}


@click.command("vision")
@with_limits
@click.option("--model", required=True, metavar="NAME", help="A network: resnet-50, yolov7, vit-b/16.")
@click.option("--images", required=True, type=AMOUNT, metavar="N", help="Images of an epoch: 5M.")
@click.option("--epochs", type=AMOUNT, metavar="N", help="How often each; once if left out.")
def vision_command(**options: Any) -> dict[str, Any]:
    """Advise on training a vision network."""
    return {"vision": given(**options)}


@click.command("hpc")
@with_limits
@click.option("--code", metavar="NAME", help="Molecular dynamics: gromacs, amber, namd, openmm.")
@click.option("--atoms", type=AMOUNT, metavar="N", help="Of the system: 1.4M.")
@click.option("--ns", type=AMOUNT, metavar="N", help="Nanoseconds to simulate.")
@click.option("--precision", type=click.Choice(["fp64", "fp32"]), help="In place of a code: work that needs this.")
@click.option("--flops", type=AMOUNT, metavar="N", help="Operations of it in all: 1e18.")
def hpc_command(**options: Any) -> dict[str, Any]:
    """Advise on molecular dynamics, or on work in double precision."""
    return {"hpc": given(**options)}


@click.command("render")
@with_limits
@click.option("--engine", metavar="NAME", help="cycles if left out; any, with --frame-time.")
@click.option("--frames", type=WHOLE, metavar="N", help="How many; one if left out.")
@click.option("--samples", type=WHOLE, metavar="N", help="A pixel; 1024 if left out.")
@click.option("--width", type=WHOLE, metavar="N", help="Pixels; 1920 if left out.")
@click.option("--height", type=WHOLE, metavar="N", help="Pixels; 1080 if left out.")
@click.option("--frame-time", "frame_s", type=TIME, metavar="TIME", help="What a frame of yours took: 90s.")
@click.option("--measured-on", metavar="GPU", help="On which GPU it took that.")
def render_command(**options: Any) -> dict[str, Any]:
    """Advise on rendering frames."""
    return {"render": given(**options)}


@click.command("prove")
@with_limits
@click.option("--system", required=True, metavar="NAME", help="groth16 or risc0.")
@click.option("--constraints", type=AMOUNT, metavar="N", help="Of the circuit: 2^24.")
@click.option("--cycles", type=AMOUNT, metavar="N", help="Of the virtual machine: 1M.")
@click.option("--proofs", type=WHOLE, metavar="N", help="How many; one if left out.")
def prove_command(**options: Any) -> dict[str, Any]:
    """Advise on zero-knowledge proofs."""
    return {"prove": given(**options)}


@click.command("hash")
@with_limits
@click.option("--algorithm", metavar="NAME", help="ethash if left out; md5, sha2-256, kawpow…")
@click.option("--hashes", type=AMOUNT, metavar="N", help="How many; only the rate if left out.")
def hash_command(**options: Any) -> dict[str, Any]:
    """Advise on hashing."""
    return {"hash": given(**options)}


@click.command("run")
@with_limits
@click.argument("file", metavar="TASK.YAML")
def run_command(file: str) -> dict[str, Any]:
    """Advise on a run file: by the model that it names, or by what it asks for. - reads standard input."""
    text = sys.stdin.buffer.read(1 << 21) if file == "-" else None
    data, _ = run_file.read("standard input" if file == "-" else file, text)
    files = ("workdir", "file_mounts", "requirements")  # which stay here: advice needs none of them
    return {"run": {key: value for key, value in data.items() if key not in files}}


WORK: dict[str, click.Command] = {
    str(command.name): command
    for command in (
        *(train_command, serve_command, vision_command, hpc_command),
        *(render_command, prove_command, hash_command, run_command),
    )
}
