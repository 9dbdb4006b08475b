"""What is asked of hardware, and the little language people ask for GPUs in.

A GPU ask is a list of `:`-separated parts in any order; each part is known by its shape:

    A100,H100      names, any of them will do          40GB..  24GB  ..80GB   memory of each GPU
    8  2..4  2..   how many                            0.25                   a fraction of one GPU
    mig-1g.10gb    a MIG profile

`A100:8`, `A100,H100:40GB..:2..4`, `24GB..`, `H100:0.25`, `H100:mig-1g.10gb:2`, `8`. `GpuAsk.canonical` prints an ask
back so that parsing what it printed gives the same ask. What a fraction is besides (so much memory of a GPU, how it is
shared) has keys of its own in the run file. Whether a name exists is the catalogue's business. Memory is
kept in whole MiB. A number of four digits is a name (`4090`): no node has a thousand GPUs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cumulo.domain.names import printable
from cumulo.domain.quantities import GIB, MIB, format_cpus, format_memory, parse_memory
from cumulo.domain.sharing import WHOLE_MILLI, Isolation, SharingMode

# Boards report less memory than their name says (ECC takes 1/16 on a T4 or L4), so "16GB" admits 15 GiB.
_NOMINAL_LEAST: Final = 0.93
_NOMINAL_MOST: Final = 1.02
MAX_GPUS: Final = 999  # on one node
MAX_LENGTH: Final = 400

_COUNT = re.compile(r"(\d+)?(\.\.)?(\d+)?", re.ASCII)
_FRACTION = re.compile(r"(\d*)\.(\d+)", re.ASCII)
_SIZE = r"\d+(?:\.\d+)?\s*[mgt]i?b"
_MEMORY = re.compile(rf"({_SIZE})?(\.\.)?({_SIZE})?", re.IGNORECASE | re.ASCII)
_MIG = re.compile(r"mig-(\d+g\.\d+gb(?:[+-][a-z.]+)*|\d+c\.\d+g\.\d+gb)", re.IGNORECASE | re.ASCII)
_NUMBER_NAME = re.compile(r"[1-9]\d{3}", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _.+-]*|\d{4}[A-Za-z]*(?: ?ti)?", re.IGNORECASE | re.ASCII)


class AskError(ValueError):
    """An ask that can't be read. `start:end` is the part of `text` that is wrong."""

    def __init__(self, text: str, start: int, end: int, message: str) -> None:
        super().__init__(message)
        self.text, self.start, self.end, self.message = text, start, end, message

    def pointed(self) -> str:
        """Three lines: what is wrong, the ask, and a marker under the wrong part."""
        marker = " " * self.start + "^" * max(1, self.end - self.start)
        return f"{self.message}\n  {printable(self.text, len(self.text))}\n  {marker}"

    def __str__(self) -> str:
        wrong = self.text[self.start : self.end]
        return f"in {self.text!r}, at {wrong!r}: {self.message}" if wrong else f"{self.text!r}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAsk:
    """GPUs asked for. `names` empty means any kind.

    A part of one GPU is asked for as `milli` of it, or by `slice_memory` (bytes of its memory), and may say how it is
    to be shared (None: the best way the device offers). With `mig_profile` the count is of MIG instances, which may lie
    on one device or on several of a node.
    """

    names: tuple[str, ...] = ()
    count_min: int = 1
    count_max: int = 1
    memory_min: int | None = None
    memory_max: int | None = None
    milli: int | None = None
    mig_profile: str | None = None
    slice_memory: int | None = None
    sharing: SharingMode | None = None

    @property
    def fraction(self) -> bool:
        """Whether a part of one GPU is asked for, which others may share."""
        return self.milli is not None or self.slice_memory is not None

    @property
    def whole(self) -> bool:
        """Whether all of each GPU is asked for."""
        return not self.fraction and self.mig_profile is None

    def milli_of(self, memory_bytes: int) -> int:
        """What a fraction is of a device with that memory, in thousandths, rounded up; more than 1000 can't be had."""
        if self.slice_memory is None:
            return self.milli or WHOLE_MILLI
        return max(1, -(-self.slice_memory * WHOLE_MILLI // max(1, memory_bytes)))

    @property
    def canonical(self) -> str:
        parts = self._which()
        if self.milli is not None:
            parts.append(f"{self.milli / 1000:.3f}".rstrip("0"))
        else:
            most = None if self.count_max >= MAX_GPUS else self.count_max
            parts.append(_range(self.count_min, most, str))
        return ":".join(parts)

    def _which(self) -> list[str]:
        """The parts that say which devices or MIG instances will do."""
        memory = _range(self.memory_min, self.memory_max, _exact_memory)
        profile = f"mig-{self.mig_profile}" if self.mig_profile else ""
        return [part for part in (",".join(self.names), memory, profile) if part]

    def describe(self) -> str:
        """The canonical form, but in words where a bare number says too little: `2 GPUs`, `20GB of T4`."""
        text = self.canonical
        if self.slice_memory is not None:
            text = f"{_exact_memory(self.slice_memory)} of {':'.join(self._which()) or 'a GPU'}"
        elif text.replace(".", "").isdigit():
            text += f" GPU{'' if text == '1' else 's'}"
        return f"{text} by {self.sharing}" if self.sharing else text

    def admits_memory(self, memory_bytes: int) -> bool:
        """Whether a device of that memory will do, taking sizes as the nominal ones printed on boards."""
        if self.memory_min is not None and memory_bytes < self.memory_min * _NOMINAL_LEAST:
            return False
        return self.memory_max is None or memory_bytes <= self.memory_max * _NOMINAL_MOST


def _range(low: int | None, high: int | None, show: Callable[[int], str]) -> str:
    if low is None and high is None:
        return ""
    if low == high and low is not None:
        return show(low)
    return f"{'' if low is None else show(low)}..{'' if high is None else show(high)}"


def _exact_memory(size: int) -> str:
    """As people write it where that says all of it, else in MiB."""
    text = format_memory(size)
    return text if parse_memory(text) == size else f"{size // MIB}MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What each of `nodes` nodes must give. CPUs and memory left None get the default share when placed."""

    gpu: GpuAsk | None = None
    cpus_milli: int | None = None
    memory_bytes: int | None = None
    nodes: int = 1
    isolation: Isolation = Isolation.ANY

    def describe(self) -> str:
        """`2 nodes x A100:8, 16 CPUs, 64GB` in one line."""
        parts = [self.gpu.describe() if self.gpu else "no GPU"]
        if self.cpus_milli is not None:
            parts.append(f"{format_cpus(self.cpus_milli)} CPU{'' if self.cpus_milli == 1000 else 's'}")
        if self.memory_bytes is not None:
            parts.append(format_memory(self.memory_bytes))
        if self.isolation is Isolation.HARD:
            parts.append("hard isolation")
        line = ", ".join(parts)
        return f"{self.nodes} nodes x {line}" if self.nodes > 1 else line


# An ask without GPUs that names neither gets this much (DESIGN: defaults nobody should have to ask for).
DEFAULT_CPUS_MILLI: Final = 1000
DEFAULT_MEMORY_BYTES: Final = 2 * GIB


def parse_gpu_ask(text: str) -> GpuAsk:
    """Reads a GPU ask. Raises AskError pointing at the wrong part."""
    found: dict[str, GpuAsk] = {}
    position = 0
    if not text.strip():
        raise AskError(text, 0, len(text), "the ask is empty; write for example A100:8 or 24GB..")
    if len(text) > MAX_LENGTH:
        raise AskError(text[:40] + "…", 0, 0, f"an ask has at most {MAX_LENGTH} characters")
    for raw in text.split(":"):
        part, start = raw.strip(), position + len(raw) - len(raw.lstrip())
        position += len(raw) + 1
        kind, value = _read_part(text, part, start)
        if kind in found:
            raise AskError(text, start, start + len(part), f"the {kind} is given twice")
        found[kind] = value
    if "fraction" in found and ("count" in found or "MIG profile" in found):
        raise AskError(
            text,
            0,
            len(text),
            "a fraction is of one GPU: give no count and no MIG profile with it",
        )
    blank = GpuAsk()
    count, memory = found.get("count", blank), found.get("memory", blank)
    return GpuAsk(
        names=found.get("name", blank).names,
        count_min=count.count_min,
        count_max=count.count_max,
        memory_min=memory.memory_min,
        memory_max=memory.memory_max,
        milli=found.get("fraction", blank).milli,
        mig_profile=found.get("MIG profile", blank).mig_profile,
    )


def _read_part(text: str, part: str, start: int) -> tuple[str, GpuAsk]:
    end = start + len(part)
    if not part:
        raise AskError(text, start, end, "a part is missing here; is there a ':' too many?")
    if match := _FRACTION.fullmatch(part):
        digits = match[2].rstrip("0")
        if int(match[1] or 0) or not digits or len(digits) > 3:
            raise AskError(text, start, end, "a fraction is of 0.001 to 0.999 of a GPU, in thousandths")
        return "fraction", GpuAsk(milli=int(digits.ljust(3, "0")))
    if (match := _MIG.fullmatch(part)) or part.lower().startswith("mig-"):
        if not match:
            raise AskError(
                text,
                start,
                end,
                "that is not a MIG profile; write for example mig-1g.10gb",
            )
        return "MIG profile", GpuAsk(mig_profile=match[1].lower())
    if (match := _COUNT.fullmatch(part)) and (match[1] or match[3]) and not _NUMBER_NAME.fullmatch(part):
        return "count", _count(text, start, end, match)
    if (match := _MEMORY.fullmatch(part)) and (match[1] or match[3]):
        return "memory", _memory(text, start, end, match)
    return "name", GpuAsk(names=_names(text, part, start))


def _count(text: str, start: int, end: int, match: re.Match[str]) -> GpuAsk:
    low = int(match[1] or 1)
    high = int(match[3]) if match[3] else (MAX_GPUS if match[2] else low)
    if low < 1:
        raise AskError(
            text,
            start,
            end,
            "at least 1 GPU must be asked for; leave the ask out for none",
        )
    if low > MAX_GPUS:
        raise AskError(text, start, end, f"more than {MAX_GPUS} GPUs can't be asked for on one node")
    if high < low:
        raise AskError(text, start, end, f"the range is empty: {high} is less than {low}")
    return GpuAsk(count_min=low, count_max=min(high, MAX_GPUS))


def _memory(text: str, start: int, end: int, match: re.Match[str]) -> GpuAsk:
    try:
        low = _whole_mib(match[1]) if match[1] else None
        high = _whole_mib(match[3]) if match[3] else (None if match[2] else low)
    except ValueError as error:
        raise AskError(text, start, end, str(error)) from None
    if low is not None and high is not None and high < low:
        raise AskError(text, start, end, "the range is empty: the most is less than the least")
    return GpuAsk(memory_min=low, memory_max=high)


def _whole_mib(text: str) -> int:
    size = parse_memory(text) // MIB * MIB
    if not size:
        raise ValueError(f"{text!r}: a GPU's memory is asked for in MiB at least")
    return size


def _names(text: str, part: str, start: int) -> tuple[str, ...]:
    names: list[str] = []
    position = start
    for raw in part.split(","):
        name = raw.strip()
        at = position + len(raw) - len(raw.lstrip())
        position += len(raw) + 1
        if not _NAME.fullmatch(name):
            raise AskError(
                text,
                at,
                at + len(name),
                "neither a GPU name, a count, a memory size, a fraction nor a MIG profile",
            )
        if name not in names:
            names.append(name)
    return tuple(names)
