"""Ports of a run as ports of this machine: Jupyter or TensorBoard of a dev run in one's own browser."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from cumulo.cli.session import note
from cumulo.client.channel import Channel
from cumulo.domain.errors import CumuloError

_CHUNK = 1 << 16
Open = Callable[[int], Channel]


@dataclass(frozen=True, slots=True)
class Forward:
    """`local` is a port of this machine (0: any that is free), `remote` one of the run's."""

    local: int
    remote: int


def parse(text: str) -> Forward:
    """`8888`, or `LOCAL:REMOTE`. Raises click.UsageError."""
    local, colon, remote = text.partition(":")
    try:
        found = Forward(int(local), int(remote if colon else local))
    except ValueError:
        raise click.UsageError(f"-L: {text!r} is not PORT or LOCAL:PORT") from None
    if not (0 <= found.local < 65536 and 0 < found.remote < 65536):
        raise click.UsageError(f"-L: {text!r}: ports are 1 to 65535")
    return found


@contextlib.contextmanager
def forwarding(forwards: tuple[Forward, ...], open_channel: Open) -> Iterator[None]:
    """Listens on loopback for each forward until the end. Raises CumuloError for a port that is taken."""
    listeners: list[socket.socket] = []
    try:
        for forward in forwards:
            listeners.append(_listener(forward))
        for forward, listener in zip(forwards, listeners, strict=True):
            note(f"http://127.0.0.1:{listener.getsockname()[1]} is port {forward.remote} of the run")
            threading.Thread(target=_accept, args=(listener, forward.remote, open_channel), daemon=True).start()
        yield
    finally:
        for listener in listeners:
            listener.close()


def _listener(forward: Forward) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", forward.local))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise CumuloError(
            "conflict",
            f"port {forward.local} of this machine can't be used: {reason}",
            hint="-L LOCAL:PORT takes another",
        ) from None


def _accept(listener: socket.socket, remote: int, open_channel: Open) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # closed
        threading.Thread(target=_carry, args=(connection, remote, open_channel), daemon=True).start()


def _carry(connection: socket.socket, remote: int, open_channel: Open) -> None:
    """One connection: what either side says to the other, until one of them has left."""
    with connection:
        try:
            channel = open_channel(remote)
        except CumuloError as error:
            note(f"port {remote}: {error.message}")
            return
        with channel:
            sender = threading.Thread(target=_send, args=(connection, channel), daemon=True)
            sender.start()
            with contextlib.suppress(OSError, CumuloError):
                while (data := channel.receive()) is not None:
                    connection.sendall(data)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the sender
            sender.join()


def _send(connection: socket.socket, channel: Channel) -> None:
    with contextlib.suppress(OSError):
        while data := connection.recv(_CHUNK):
            channel.send(data)
        channel.eof()
