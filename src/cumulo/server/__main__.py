"""`python -m cumulo.server`: the server as a process, in the foreground, as the command line starts it.

What goes wrong at the start is one line, `error: …`, and the exit code of its kind. A database URL comes by
$CUMULO_DATABASE, since arguments can be read by everybody on the machine and a URL may hold a password.
"""

import argparse
import gc
import logging
import os
import sys
from pathlib import Path

from cumulo.domain.errors import CumuloError


def main(words: list[str] | None = None) -> int:
    """Runs the server; returns its exit code."""
    # The linear algebra of prices is small: threads would fight the server's own for the cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = _parser().parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        _serve(arguments)
    except CumuloError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.kind.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cumulo.server", allow_abbrev=False)
    parser.add_argument("--emulate", metavar="SPEC", help="emulated devices, such as A100-80GB:8")
    parser.add_argument("--simulate", metavar="SPEC", help="simulated nodes, such as '1000x A100-80GB:8'")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, help="the usual one, or any if that is taken")
    parser.add_argument("--socket", type=Path, help="where the unix socket lies")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--insecure", action="store_true", help="listen beyond loopback without TLS")
    return parser


def _serve(arguments: argparse.Namespace) -> None:
    # What is imported now stays for good: the collector need not look at it while it comes, nor ever again.
    gc.disable()
    # Imported here: a wrong argument should not wait for a web framework.
    from cumulo.server.compose import Options, serve
    from cumulo.server.listen import Address
    from cumulo.server.state import default_home, default_socket

    gc.freeze()
    gc.enable()
    home = default_home(os.environ)
    socket = arguments.socket.absolute() if arguments.socket else default_socket(home, os.environ)
    address = Address(
        host=arguments.host,
        port=arguments.port,
        socket=socket,
        socket_mode=0o666 if os.geteuid() == 0 else 0o600,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
        insecure=arguments.insecure,
    )
    database = os.environ.pop("CUMULO_DATABASE", None)
    nodes = {"emulate": arguments.emulate, "simulate": arguments.simulate}
    serve(Options(home=home, address=address, database=database, **nodes))


if __name__ == "__main__":
    sys.exit(main())
