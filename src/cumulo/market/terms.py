"""What the purchase options of a cloud cost beside on-demand, and the rules of its spot market.

What the admin sets goes before what public clouds' price lists say of the kind (`catalog.terms`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cumulo.catalog.terms import list_terms
from cumulo.domain.quantities import format_duration

YEAR_S: Final = 365 * 86400.0
# From being told to stop until another computes in its place; a run is worth starting for three of them.
CHANGEOVER_S: Final = 60.0
CHANGEOVERS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Ratios are thousandths of the on-demand price.

    `spot_floor` is by kind, `spot_floor_of_all` for kinds that it lacks. `reserved` and `upfront` are by the least term
    in seconds from which they hold. A spot run isn't outbid for the first `min_run_s`; prices rise once in
    `price_every_s` at most.
    """

    spot_floor: Mapping[str, int] = field(default_factory=dict)
    spot_floor_of_all: int | None = None
    reserved: Mapping[float, int] = field(default_factory=dict)
    upfront: Mapping[float, int] = field(default_factory=dict)
    min_run_s: float = CHANGEOVERS * CHANGEOVER_S
    price_every_s: float = 300.0

    def __post_init__(self) -> None:
        for ratios in (self.spot_floor, self.reserved, self.upfront):
            for of, milli in ratios.items():
                if not 0 <= milli <= 1000:
                    shown = of if isinstance(of, str) else format_duration(of)
                    raise ValueError(f"{milli / 1000:g} of the on-demand price for {shown}: it must be from 0 to 1")

    def floor_nano_h(self, kind: str, on_demand_nano_h: int) -> int:
        """The least spot price of a GPU for an hour."""
        milli = self.spot_floor.get(kind, self.spot_floor_of_all)
        return on_demand_nano_h * (list_terms(kind).spot_milli if milli is None else milli) // 1000

    def reserved_nano_h(self, kind: str, on_demand_nano_h: int, *, term_s: float, upfront: bool) -> int:
        """What a reserved GPU costs an hour, used or not; with `upfront` all of it is paid when the term begins.

        No price list has terms other than a year with nothing upfront: shorter ones cost what on-demand does, and
        paying upfront saves nothing, unless the admin set otherwise.
        """
        plain = _longest(self.reserved, term_s)
        if plain is None and not self.reserved:
            plain = list_terms(kind).reserved_1y_milli if term_s >= YEAR_S else None
        milli = 1000 if plain is None else plain
        early = _longest(self.upfront, term_s) if upfront else None
        return on_demand_nano_h * (milli if early is None else min(early, milli)) // 1000


def _longest(ratios: Mapping[float, int], term_s: float) -> int | None:
    """The ratio of the longest term that is reached."""
    reached = [least for least in ratios if least <= term_s]
    return ratios[max(reached)] if reached else None
