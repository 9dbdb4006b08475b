"""By what runs are told apart when it is asked how long they take."""

from collections.abc import Sequence
from dataclasses import dataclass

from cumulo.placement.world import Hold, Waiting

Group = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """By what runs are compared: who runs it, what it is called, how many GPUs it takes and what limit it declared."""

    project: str = ""
    account: str = ""
    family: str = ""
    gpus: int = 0
    limit_s: float | None = None

    def groups(self) -> tuple[Group, ...]:
        """From the widest group to the narrowest. Runs without a declared limit are a world of their own."""
        limit = "" if self.limit_s is None else f"{self.limit_s:.0f}"
        words = (limit, self.project, self.account, self.family, str(self.gpus))
        return tuple(words[: size + 1] for size in range(len(words)))


def traits_of(waiting: Waiting) -> Traits:
    """What a unit that waits has in common with others."""
    gpu = waiting.ask.gpu
    return Traits(
        project=waiting.project,
        account=waiting.account,
        family=family(waiting.name),
        gpus=gpu.count_min * waiting.ask.nodes if gpu else 0,
        limit_s=waiting.duration_s,
    )


def traits_held(holds: Sequence[Hold], now: float) -> Traits:
    """The same for what runs: the instances of one attempt. What has not started yet starts now."""
    first = holds[0]
    return Traits(
        project=first.project,
        account=first.account,
        family=family(first.run_name),
        gpus=sum(len(hold.slices) for hold in holds),
        limit_s=None if first.until is None else max(0.0, first.until - started(first, now)),
    )


def started(hold: Hold, now: float) -> float:
    return now if hold.started_at is None else hold.started_at


def family(name: str) -> str:
    """What runs of one kind are called: the name without what counts them, `train-17` and `train_v2.3` as `train`."""
    return name.rstrip("0123456789.-_[]v") or name
