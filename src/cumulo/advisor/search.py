"""The search over plans: every supply, every number of GPUs that can pay, every way to buy them.

How long work takes depends on the board, the size of its nodes and the number, not on who rents it out; so it is
worked out once for each of those and then priced. Numbers of GPUs double, from the least that could hold the work
until another doubling helps no more.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from cumulo.advisor.plans import Estimate, Plan, Refusal, Supply
from cumulo.advisor.questions import Wanted
from cumulo.domain.run import PurchaseOption

_LEAST_GAIN: Final = 1.15
"""Twice the GPUs must be so many times as fast, or nobody takes them."""
_MOST_WASTE: Final = 4.0
"""GPU-hours over the least that the same board needs, past which a plan is left out."""


class Estimator(Protocol):
    """What answers for one question."""

    @property
    def endless(self) -> bool:
        """Whether the work has no end, as a service's has none."""

    def least_gpus(self, supply: Supply) -> int: ...

    def most_gpus(self) -> int: ...

    def estimate(self, supply: Supply, gpus: int) -> Estimate | Refusal: ...


@dataclass(slots=True)
class Found:
    """Plans in no order, and why GPUs were refused. `tried` counts what was worked out."""

    plans: list[Plan] = field(default_factory=list)
    refusals: list[tuple[Supply, Refusal]] = field(default_factory=list)
    tried: int = 0


def search(estimator: Estimator, supplies: Iterable[Supply], wanted: Wanted) -> Found:
    """Every plan worth telling. Pure: the same question and supplies give the same plans."""
    found = Found()
    by_board: dict[tuple[str, bool, str, float], list[Supply]] = {}
    for supply in supplies:
        if not wanted.kinds or supply.kind.name in wanted.kinds:
            key = (supply.variant.name, supply.own, supply.profile or supply.mode, supply.share)
            by_board.setdefault(key, []).append(supply)
    for group in by_board.values():
        _one_board(estimator, group, wanted, found)
    return found


def _one_board(estimator: Estimator, group: list[Supply], wanted: Wanted, found: Found) -> None:
    most = min(estimator.most_gpus(), wanted.max_gpus or estimator.most_gpus())
    least = max(1, min(estimator.least_gpus(supply) for supply in group))
    rates: dict[int, float] = {}
    refusal: tuple[Supply, Refusal] | None = None
    for gpus in counts(group, most):
        if gpus < least:
            continue
        rate = 0.0
        answers: dict[int, Estimate | Refusal] = {}
        for supply in _sizes(group, gpus):
            if supply.per_node not in answers:
                found.tried += 1
                answers[supply.per_node] = estimator.estimate(supply, gpus)
            answer = answers[supply.per_node]
            if isinstance(answer, Refusal):
                refusal = (supply, answer)
                continue
            rate = max(rate, answer.rate.expected)
            found.plans += priced(supply, gpus, answer, _options(supply, wanted, endless=estimator.endless))
        if refusal is not None and refusal[1].reason in ("precision", "unknown"):
            break
        if rate:
            each = max((rates[number] / number for number in rates), default=0.0)
            last = max(rates, default=0)
            if last and (rate < _LEAST_GAIN ** (gpus / last - 1) * rates[last] or rate / gpus * _MOST_WASTE < each):
                break
            rates[gpus] = rate
    if not rates:
        able = min(most, max(supply.limit for supply in group))
        text = f"{group[0].name}: at least {least} GPUs are needed, and only {able} may be used together"
        found.refusals.append(refusal or (group[0], Refusal("few", text)))


def counts(group: list[Supply], most: int) -> Iterator[int]:
    """Numbers of GPUs that are tried: powers of two, all that one owns, and the most that there may be."""
    limit = min(most, max(supply.limit for supply in group))
    owned = {supply.most for supply in group if supply.own and supply.most}
    doubling = {1 << power for power in range(limit.bit_length())}
    yield from sorted(number for number in doubling | owned | {limit} if number <= limit)


def _sizes(group: list[Supply], gpus: int) -> list[Supply]:
    """Nodes to take them from: those that hold just as many, else the smallest that hold all, else the largest."""
    able = [supply for supply in group if supply.limit >= gpus]
    holding = [supply.per_node for supply in able if supply.per_node >= gpus]
    size = min(holding) if holding else max((supply.per_node for supply in able), default=0)
    return [supply for supply in able if supply.per_node == size]


def _options(supply: Supply, wanted: Wanted, *, endless: bool) -> list[PurchaseOption]:
    """Ways to buy. A year's reservation is for what stays, or for whoever asks for it."""
    asked = wanted.purchases or frozenset(PurchaseOption) - (frozenset() if endless else {PurchaseOption.RESERVED})
    return [option for option in supply.prices if option in asked]


def priced(supply: Supply, gpus: int, estimate: Estimate, options: list[PurchaseOption]) -> Iterator[Plan]:
    """The plan for each of these purchase options; one without a price where no list has the board."""
    nodes = -(-gpus // supply.per_node)
    billed = gpus if supply.own else nodes * supply.per_node
    host = estimate.host_bytes * min(gpus, supply.per_node)
    for option in options if supply.prices else [PurchaseOption.ON_DEMAND]:
        price = supply.price(option, host)
        if price is None and supply.prices:
            continue  # all that list it so have too little memory beside the GPUs
        yield Plan(
            supply=supply,
            gpus=gpus,
            nodes=nodes,
            purchase=option,
            price=price,
            billed_gpus=billed,
            estimate=estimate,
        )
