"""Why an ask waits: per node, in sum, and which constraint binds.

When it starts is told by `forecast`, what would start it now by `suggest`. Nothing here is paid for by runs that are
placed: it is worked out when somebody asks.
"""

from collections import Counter
from dataclasses import dataclass, replace

from cumulo.domain.ask import Ask
from cumulo.placement.fit import admitted_kinds, gpu_counts, places_on, possible_models
from cumulo.placement.order import HeldBack, Pass
from cumulo.placement.refuse import Constraint, Refusal, refusal
from cumulo.placement.world import Waiting, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Refusals of the nodes that can't take one instance now, and which could.

    All instances of an ask get GPUs of one kind: `alike_now` and `alike_ever` count the nodes that could give the same.
    `held_back` is why it waits whatever the nodes have: its project's quota, or what is kept for the head of the queue.
    """

    refusals: tuple[Refusal, ...]
    fitting: tuple[str, ...]
    nodes_asked: int
    alike_now: int
    alike_ever: int
    held_back: HeldBack | None = None
    starts: bool = False

    @property
    def binding(self) -> Constraint | None:
        """The constraint that binds: of the least lasting kind among the nodes, the one most nodes fail."""
        if self.held_back is not None:
            return self.held_back.constraint
        if self.alike_now >= self.nodes_asked:
            return None
        if self.fitting:
            return Constraint.NODES
        pool = [r.constraint for r in self.refusals if not r.constraint.lasting]
        pool = pool or [r.constraint for r in self.refusals]
        return Counter(pool).most_common(1)[0][0] if pool else None

    @property
    def ever(self) -> bool:
        """Whether the nodes that are there could take the ask if all of it were free."""
        return self.alike_ever >= self.nodes_asked

    def counts(self) -> list[tuple[Constraint, int]]:
        """How many nodes fail each constraint first, most first."""
        return Counter(r.constraint for r in self.refusals).most_common()

    @property
    def fitting_text(self) -> str:
        """How many nodes could take an instance, and why that is not enough; empty when none could."""
        if not self.fitting:
            return ""
        could = f"{len(self.fitting)} of {len(self.refusals) + len(self.fitting)} nodes could take it"
        if len(self.fitting) >= self.nodes_asked > self.alike_now:
            return f"{could}, but no {self.nodes_asked} with GPUs of one kind"
        return f"{could}, {self.nodes_asked} asked"

    def summary(self) -> str:
        """One line: `1 of 2 nodes: 6 of 8 A100-80GB held, 2 free, 8 asked; 1 of 2 nodes: has 1 T4, A100:8 asked`."""
        total = len(self.refusals) + len(self.fitting)
        if not total:
            return "this cloud has no nodes"
        if self.held_back is not None:
            return self.held_back.text
        parts = [self.fitting_text] if self.fitting else []
        by_text = Counter((list(Constraint).index(r.constraint), r.text) for r in self.refusals)
        for (_, text), nodes in sorted(by_text.items(), key=lambda item: (-item[0][0], -item[1])):
            where = f"{nodes} of {total} nodes" if total > 1 else "the node"
            parts.append(f"{where}: {text}" if total > 1 else text)
        return "; ".join(parts)


def reasons(world: World, ask: Ask) -> Reasons:
    """Checks every node for one instance of the ask, at its smallest."""
    kinds = admitted_kinds(ask.gpu, world) if ask.gpu else None
    gpus = gpu_counts(ask, world)[-1]
    refusals: list[Refusal] = []
    fitting: list[str] = []
    now, ever = Counter[str](), Counter[str]()
    for use in world.nodes.values():
        refused = refusal(use, ask, kinds, gpus)
        if refused is None:
            fitting.append(use.id)
            now.update(spot.device_model for spot in places_on(use, ask, kinds, gpus))
        else:
            refusals.append(refused)
        if refused is None or not refused.constraint.lasting:
            ever.update(possible_models(use, ask, kinds, gpus))
    return Reasons(
        refusals=tuple(refusals),
        fitting=tuple(fitting),
        nodes_asked=ask.nodes,
        alike_now=max(now.values(), default=0),
        alike_ever=max(ever.values(), default=0),
    )


def explain(world: World, target: Waiting, decided: Pass) -> Reasons:
    """Why `target` waits, given what a pass over the whole queue decided: it may be held back though there is room."""
    held_back = next((held for held in decided.held_back if held.waiting.key == target.key), None)
    starts = any(decision.waiting.key == target.key for decision in decided.decisions)
    return replace(reasons(world, target.ask), held_back=held_back, starts=starts)
