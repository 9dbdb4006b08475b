"""The mix of asks seen so far: what a fleet is expected to be asked for next, in the terms that prices need.

Recent asks count more: after `MEMORY` asks the older ones count half. What was asked long ago, or once, is dropped when
there is more than the prices can take in, by how much of the fleet it stands for.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cumulo.domain.sharing import WHOLE_MILLI

MEMORY: Final = 20_000
# So many kinds of ask are priced; the rest is too rare to matter.
MOST: Final = 160
_COVERED: Final = 0.95
_CORE: Final = 0.025  # what a CPU weighs beside a GPU
# A review comes when as many asks more were seen as this share of those before, and at the latest after so many.
_FORGOTTEN: Final = 0.25
_REVIEW_SHARE: Final = 1.0
_FIRST_REVIEW: Final = 64
_LAST_REVIEW: Final = 5_000


class AskShape(NamedTuple):
    """What an ask takes, without memory of the node: `milli[k]` of each of `gpus` devices of the k-th kind, 0 where
    that kind won't do; `cpus` in milli.
    """

    gpus: int
    milli: tuple[int, ...]
    cpus: int


class Demand(NamedTuple):
    """A shape with how often it is asked for, of all asks, and how much memory it takes on the average (bytes)."""

    shape: AskShape
    share: float
    memory: float


@dataclass(slots=True)
class Mix:
    """Counts asks by shape. `due`: after how many asks seen the prices should be worked out anew."""

    asked: dict[AskShape, list[float]] = field(default_factory=dict)  # how often, and the memory of all of them
    seen: int = 0
    due: int = _FIRST_REVIEW

    def see(self, shape: AskShape, memory: int) -> bool:
        """Counts an ask; True when it is time for a review."""
        entry = self.asked.get(shape)
        if entry is None:
            entry = self.asked[shape] = [0.0, 0.0]
        entry[0] += 1.0
        entry[1] += memory
        self.seen += 1
        return self.seen >= self.due

    def review(self) -> list[Demand]:
        """What to expect, most first, and sets when the next review is due."""
        self.due = self.seen + max(_FIRST_REVIEW, min(int(self.seen * _REVIEW_SHARE), _LAST_REVIEW))
        found = self._top()
        if sum(count for count, _ in self.asked.values()) > MEMORY:
            halved = {shape: [count / 2, memory / 2] for shape, (count, memory) in self.asked.items()}
            self.asked = {shape: entry for shape, entry in halved.items() if entry[0] > _FORGOTTEN}
        return found

    def _top(self) -> list[Demand]:
        weighed = {shape: count * weight(shape) for shape, (count, _) in self.asked.items()}
        kept: list[AskShape] = []
        covered, total = 0.0, sum(weighed.values())
        for shape in sorted(weighed, key=lambda shape: (-weighed[shape], shape)):
            if covered >= _COVERED * total or len(kept) >= MOST:
                break
            kept.append(shape)
            covered += weighed[shape]
        total = sum(self.asked[shape][0] for shape in kept)
        return [
            Demand(shape, self.asked[shape][0] / total, self.asked[shape][1] / self.asked[shape][0]) for shape in kept
        ]


def weight(shape: AskShape) -> float:
    """How much of a fleet an ask stands for: its GPUs, and a little for its CPUs."""
    return gpu_share(shape) + _CORE * shape.cpus / 1000


def gpu_share(shape: AskShape) -> float:
    """How many devices' worth an ask takes where it takes the least."""
    admitted = [milli for milli in shape.milli if milli]
    return shape.gpus * min(admitted) / WHOLE_MILLI if shape.gpus and admitted else 0.0
