"""What the measurements share: how thorough to be, and one box that is started with the first need for it."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bench.box import Box

THOROUGH_RUNS, QUICK_RUNS = 1000, 200


@dataclass(slots=True)
class Trial:
    """One call of `python -m bench`. `runs_done` counts the short runs (array indexes too) that the box has run."""

    quick: bool = False
    runs_done: int = 0
    _box: Box | None = None

    @property
    def box(self) -> Box:
        if self._box is None:
            self._box = Box()
        return self._box

    def times(self, thorough: int, quick: int) -> int:
        """How often to repeat something."""
        return quick if self.quick else thorough

    def run_until_worked(self) -> int:
        """Lets the box run short runs until it has done so many that it has worked; how many it has done."""
        want = self.times(THOROUGH_RUNS, QUICK_RUNS)
        if self.runs_done < want:
            left = want - self.runs_done
            self.box.submit("true", array=f"0-{left - 1}")
            self.box.wait_until_idle()
            self.runs_done += left
        return self.runs_done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._box is not None:
            self._box.close()
            self._box = None
