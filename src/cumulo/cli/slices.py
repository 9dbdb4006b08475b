"""Devices that are shared, drawn: who holds which part, and what is left.

A device cut into MIG instances is drawn on its grid of memory slices, `[3g.40gb train][·][1g.10gb dev]`, a dot for each
slice that nobody holds.
"""

from collections import Counter
from collections.abc import Sequence

from cumulo.cli.phrases import clean
from cumulo.client.answers.cloud import Device, Holder
from cumulo.domain.sharing import FRACTION_MODES, WHOLE_MILLI, SharingMode


def holders(held: Sequence[Holder], foreign: str = "") -> str:
    """Who holds a device or parts of it, in a table's cell."""
    if not held:
        return f"outside Cumulo: {clean(foreign)}" if foreign else "free"
    alike = Counter((one.instance, one.profile) for one in held)
    first = {(one.instance, one.profile): one for one in held}
    return ", ".join(_holder(one, alike[key]) for key, one in first.items())


def _holder(one: Holder, count: int) -> str:
    times = f"{count}x " if count > 1 else ""
    part = f"{times}{_part(one)} " if one.mode != SharingMode.EXCLUSIVE else ""
    return f"{part}{clean(one.name)} ({one.run}) of {clean(one.account)}"


def _part(one: Holder) -> str:
    return clean(one.profile) if one.profile else f"{one.milli / WHOLE_MILLI:g}"


def drawn(device: Device) -> str:
    """How a shared device is divided, in a line; nothing for one that is not."""
    if device.mig_grid:
        return f"GPU {device.index}  {grid(device.holders, device.mig_grid)}"
    if device.mode in FRACTION_MODES:
        boxes = "".join(f"[{_part(one)} {clean(one.name)}]" for one in device.holders)
        left = f"[{device.milli_free / WHOLE_MILLI:g} free]" if device.milli_free > 0 else ""
        return f"GPU {device.index}  {boxes}{left}"
    return ""


def grid(held: Sequence[Holder], size: int) -> str:
    """MIG instances in their places among `size` memory slices."""
    by_start = {one.start: one for one in held}
    boxes, place = [], 0
    while place < size:
        one = by_start.get(place)
        boxes.append("[·]" if one is None else f"[{_part(one)} {clean(one.name)}]")
        place += (one.size or 1) if one else 1
    return "".join(boxes)
