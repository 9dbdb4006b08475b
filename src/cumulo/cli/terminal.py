"""The person's terminal, or pipes, joined to a command that runs elsewhere.

One thread writes what comes; the main one sends what is typed and the terminal's size. The terminal is put back as it
was, whatever happens.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator

from cumulo.client.channel import Channel

_CHUNK = 1 << 16


def size() -> tuple[int, int]:
    """Rows and columns of the terminal itself: $LINES and $COLUMNS would outlive a change of it."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 24, 80
    return found.lines or 24, found.columns or 80


def join(channel: Channel, *, raw: bool) -> int:
    """Joins stdin and stdout to `channel` until it ends; the command's exit code. Raises what the channel raises.

    `raw`: every key goes to the other side as it is, Ctrl-C too, and the terminal's size follows.
    """
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    failures: list[Exception] = []
    writer = threading.Thread(target=_write, args=(channel, wake, failures), daemon=True)
    with _raw_terminal() if raw else contextlib.nullcontext(), _size_told(wake) if raw else contextlib.nullcontext():
        writer.start()
        with contextlib.suppress(BrokenPipeError):
            _send(channel, awake, raw=raw)
        writer.join()
    if failures:
        raise failures[0]
    return channel.exit_code if channel.exit_code is not None else 255


def _write(channel: Channel, wake: int, failures: list[Exception]) -> None:
    """Writes to stdout what comes, and wakes the main thread at the end."""
    try:
        while (data := channel.receive()) is not None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except Exception as error:
        failures.append(error)
        channel.close()
    finally:
        with contextlib.suppress(OSError):
            os.write(wake, b"e")


def _send(channel: Channel, awake: int, *, raw: bool) -> None:
    """Sends what stdin gives until the other side ends, which may be long after stdin has."""
    stdin = sys.stdin.fileno()
    watched = [stdin, awake]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if awake in ready:
            told = os.read(awake, 64)
            if b"e" in told:
                return
            if raw:
                channel.resize(*size())
        if stdin in ready:
            data = os.read(stdin, _CHUNK)
            if data:
                channel.send(data)
            else:
                watched.remove(stdin)
                channel.eof()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    try:
        tty.setraw(stdin, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _size_told(wake: int) -> Iterator[None]:
    """Wakes the main thread when the window changes."""

    def changed(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):
            os.write(wake, b"r")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
