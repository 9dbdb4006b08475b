"""`offers --history`: spot prices as they were, drawn over time."""

from collections.abc import Sequence
from datetime import datetime

from cumulo.catalog.kinds import find
from cumulo.cli import chart, phrases
from cumulo.cli.phrases import clean
from cumulo.client.answers.market import SpotPrice

_WIDTH = 60


def of_kind(found: Sequence[SpotPrice], name: str | None) -> tuple[SpotPrice, ...]:
    """Those of the kinds that a name may mean."""
    if name is None:
        return tuple(found)
    kinds = {kind.name for kind in find(name)} or {name}
    return tuple(row for row in found if row.gpu in kinds)


def drawn(found: Sequence[SpotPrice], *, since: datetime, until: datetime) -> str:
    """A chart for each region and kind, from nothing to the on-demand price."""
    pools: dict[tuple[str, str], list[SpotPrice]] = {}
    for row in found:
        pools.setdefault((row.gpu, row.region), []).append(row)
    return "\n\n".join(_pool(rows, since, until) for _, rows in sorted(pools.items()))


def _pool(rows: Sequence[SpotPrice], since: datetime, until: datetime) -> str:
    last = rows[-1]
    steps = [chart.Step(row.at.timestamp(), row.price_usd_h) for row in rows if row.at]
    values = chart.columns(steps, since=since.timestamp(), until=until.timestamp(), width=_WIDTH)
    head = (
        f"{clean(last.gpu)} in {clean(last.region)}: spot {phrases.usd(last.price_usd_h)}/h now, on demand "
        f"{phrases.usd(last.on_demand_usd_h)}/h; {last.held:g} of {last.gpus:g} GPUs are held by spot runs"
    )
    begin, end = phrases.clock(since), phrases.clock(until)
    axis = " " * (len(f"{last.on_demand_usd_h:.2f}") + 2) + begin + end.rjust(max(1, _WIDTH - len(begin)))
    return f"{head}\n{chart.drawn(values, top=max(last.on_demand_usd_h, *(step.value for step in steps)))}\n{axis}"
