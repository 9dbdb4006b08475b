"""Amounts as people write them, and as Cumulo keeps them: bytes, seconds, milli-CPUs, nano-USD.

Memory in files and flags follows the field's habit: a bare number is GiB, and "GB" is read as GiB, since every
GPU vendor and SkyPilot write "80GB" for 80 x 2**30 bytes.
"""

import re
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30
NANO: Final = 1_000_000_000
MAX_MEMORY: Final = 1 << 60

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_SCALE = {"": GIB, "k": 1 << 10, "m": MIB, "g": GIB, "t": 1 << 40}
_SHOWN = (("TB", 1 << 40), ("GB", GIB), ("MB", MIB))
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|m|s)", re.IGNORECASE | re.ASCII)
_DURATION_UNIT = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def parse_memory(text: str | float) -> int:
    """Bytes from `16`, `16GB`, `16 GiB`, `512MiB`, `1.5TB`. Raises ValueError with a sentence."""
    match = _MEMORY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{str(text)!r} is not an amount of memory; write for example 16GB or 512MB")
    size = float(match[1]) * _SCALE[match[2].lower()]
    if not 1 <= size < MAX_MEMORY:
        raise ValueError(f"{str(text)[:40]!r}: memory must be more than nothing and less than an exabyte")
    return int(size)


def format_memory(size: int) -> str:
    """`80GB`, `1.5TB`, `512MB`: exact for whole GiB, else to one decimal; readable by `parse_memory`."""
    units = [(unit, scale) for unit, scale in _SHOWN if size >= scale]
    for unit, scale in units:
        if 10 * size % scale == 0 and (scale >= GIB or size < 4 * GIB):
            return f"{size / scale:.10g}{unit}"
    return f"{size / units[0][1]:.1f}{units[0][0]}" if units else f"{size / 1024:.10g}KB"


def parse_duration(text: str | float) -> float:
    """Seconds from `90`, `90s`, `30m`, `12h`, `1d12h`, `1h30m`. Raises ValueError with a sentence."""
    seconds = float(text) if isinstance(text, int | float) else _duration_of_text(text.strip())
    if not 0 < seconds < 10 * 365 * 86400:
        raise ValueError(f"{str(text)!r}: a duration must be more than nothing and less than ten years")
    return seconds


def _duration_of_text(text: str) -> float:
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return float(text)
    total, end = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        if part.start() != end:
            break
        total += float(part[1]) * _DURATION_UNIT[part[2].lower()]
        end = part.end()
    if not text or end != len(text):
        raise ValueError(f"{text!r} is not a duration; write for example 90s, 30m, 12h or 1d12h")
    return total


def format_duration(seconds: float) -> str:
    """`4s`, `2m 05s`, `3h 20m`, `2d 4h`: two units at most."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f}s" if seconds < 10 and seconds != whole else f"{whole}s"
    minutes, secs = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {secs:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


def parse_cpus(text: str | float) -> int:
    """Milli-CPUs from `4`, `0.5`, `4+` (SkyPilot's "at least four"). Raises ValueError."""
    body = str(text).strip().removesuffix("+")
    try:
        milli = round(float(body) * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{str(text)!r} is not a number of CPUs; write for example 4 or 0.5") from None
    if not 0 < milli <= 10_000_000:
        raise ValueError(f"{str(text)!r}: CPUs must be more than 0 and at most 10000")
    return milli


def format_cpus(milli: int) -> str:
    return f"{milli / 1000:g}"


def format_usd(nano: int) -> str:
    """`$0.00`, `$1.27`, `$0.0042`: cents, and four places below one cent so that small runs are not free."""
    usd = nano / NANO
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:,.2f}"
