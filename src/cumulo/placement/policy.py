"""What the admin decides about order: what a project weighs, what it may hold, what it is sure of, who yields to whom.

Projects that are not named get the rules of `others`. GPU kinds are named as devices are (`A100-80GB`), never by a
family name: a quota that could be read in two ways is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# What a run is taken to last where nobody declared or learnt it: who declares less comes sooner, and so who declares
# nothing waits for 40 hours of what came later at most.
UNTOLD_S: Final = 4 * 3600.0
# Slurm's PriorityDecayHalfLife is 7 days where nobody sets it.
DEFAULT_HALF_LIFE_S: Final = 7 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that a project may hold at once, in all and of each GPU kind. None, or a kind left out: no limit."""

    gpus: int | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    cpus_milli: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, most in self.limits.items():
            if most < 0:
                raise ValueError(f"a quota of {most} for {name}: the least is 0")

    @property
    def limits(self) -> dict[str, int]:
        """What is limited, by name; empty for a project that may hold all there is."""
        of_all = {"GPUs": self.gpus, "CPUs": self.cpus_milli, "memory": self.memory_bytes}
        return {name: most for name, most in of_all.items() if most is not None} | dict(self.kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRules:
    """`guaranteed` GPUs by kind are the project's whenever it asks; while it does not, others borrow them."""

    weight: float = 1.0
    quota: Quota = field(default_factory=Quota)
    guaranteed: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(
                f"a weight of {self.weight}: it must be above 0; to keep a project out, give it a quota of 0"
            )
        for kind, count in self.guaranteed.items():
            if count < 0:
                raise ValueError(f"{count} GPUs of {kind} guaranteed: the least is 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one pass over the queue decides.

    `stretch`: a run is due after it has waited that many times its own length, and within a project the first due comes
    first (`turns`); 0 goes by age alone.
    `backfill`: runs behind one that waits may start where they don't delay the first `reservations` that wait, at most
    `backfill_depth` of them looked at in a pass. `preemption`: on-demand and guaranteed work may stop spot and borrowed
    work, and spot runs may stop those that bid less and have run for `min_run_s`. `make_room`: a run may move at most
    `most_moves` small migratable runs out of its way.
    """

    projects: Mapping[str, ProjectRules] = field(default_factory=dict)
    others: ProjectRules = field(default_factory=ProjectRules)
    half_life_s: float = DEFAULT_HALF_LIFE_S
    stretch: float = 10.0
    backfill: bool = True
    reservations: int = 4
    backfill_depth: int = 10_000
    preemption: bool = True
    min_run_s: float = 180.0
    make_room: bool = False
    most_moves: int = 3

    def __post_init__(self) -> None:
        if self.stretch < 0:
            raise ValueError(f"a stretch of {self.stretch}: the least is 0")
        if not self.half_life_s > 0:
            raise ValueError(f"a half-life of {self.half_life_s} s: it must be above 0")

    def rules(self, project: str) -> ProjectRules:
        return self.projects.get(project, self.others)

    @property
    def guarantees(self) -> bool:
        """Whether anybody is sure of anything."""
        return bool(self.others.guaranteed) or any(rules.guaranteed for rules in self.projects.values())
