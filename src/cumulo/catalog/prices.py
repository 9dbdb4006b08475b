"""What GPUs rent for in public clouds, so that one's own hardware can be compared with them.

List prices at a date, not quotes: `price()` says of which dates and clouds. All amounts are integer nano-USD an hour.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from cumulo.catalog.kinds import DATA
from cumulo.domain.quantities import GIB, NANO

_PRICES: Final = DATA / "prices.csv"
_SOURCES: Final = DATA / "price_sources.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """One way to rent GPUs: an instance type in a cloud's region, at the price of its cheapest zone.

    Amounts are for the whole instance; None where the cloud lists none, or where the list lacks it. A `bare` rental is
    the GPU alone, to which a host must be added.
    """

    cloud: str
    region: str
    instance_type: str
    kind: str
    gpus: int
    cpus: float | None
    memory_bytes: int | None
    on_demand: int
    spot: int | None
    reserved_1y: int | None
    bare: bool

    def on_demand_per_gpu(self) -> int:
        return self.on_demand // self.gpus

    def spot_per_gpu(self) -> int | None:
        """None where spot is not listed, or saves nothing."""
        return None if self.spot is None or self.spot >= self.on_demand else self.spot // self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRange:
    """Nano-USD per GPU-hour over `places`, the number of cloud regions counted: each at its cheapest."""

    least: int
    median: int
    most: int
    places: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """What one GPU of a kind rents for. Dates are ISO days, None where no list with a date has the kind."""

    kind: str
    on_demand: PriceRange
    spot: PriceRange | None
    clouds: tuple[str, ...]
    oldest: str | None
    newest: str | None
    undated: bool
    """Whether some of the clouds come from a list without a date."""
    bare: bool

    def describe(self) -> str:
        """Who says so, and when: `list prices of aws, azure, 2026-01-21 to 2026-05-20`."""
        dates = dict.fromkeys(date for date in (self.oldest, self.newest) if date)
        when = " to ".join(dates)
        if self.undated:
            when += " and undated" if when else "undated"
        host = " without a host" if self.bare else ""
        return f"list prices{host} of {', '.join(self.clouds)}, {when}"


def price(kind: str) -> ListPrice | None:
    """What a GPU of that kind (its exact name) rents for; None if no cloud in the lists has it.

    Per region the cheapest instance counts: bigger hosts around the same GPU say nothing about the GPU. Spot counts
    where it costs less than on demand: some clouds list the same price twice.
    """
    listed = rentals(kind)
    with_host = tuple(rental for rental in listed if not rental.bare)
    counted = with_host or listed
    on_demand = _range((rental, rental.on_demand_per_gpu()) for rental in counted)
    if on_demand is None:
        return None
    clouds = tuple(sorted({rental.cloud for rental in counted}))
    dates = sorted(date for cloud in clouds if (date := _dates().get(cloud)))
    return ListPrice(
        kind=kind,
        on_demand=on_demand,
        spot=_range((each, amount) for each in counted if (amount := each.spot_per_gpu())),
        clouds=clouds,
        oldest=dates[0] if dates else None,
        newest=dates[-1] if dates else None,
        undated=any(cloud not in _dates() for cloud in clouds),
        bare=not with_host,
    )


@cache
def rentals(kind: str) -> tuple[Rental, ...]:
    """Every way in the lists to rent GPUs of that kind (its exact name)."""
    return tuple(_rental(row) for row in _rows().get(kind, ()))


def _range(prices: Iterable[tuple[Rental, int]]) -> PriceRange | None:
    cheapest: dict[tuple[str, str], int] = {}
    for rental, amount in prices:
        place = (rental.cloud, rental.region)
        cheapest[place] = min(amount, cheapest.get(place, amount))
    if not cheapest:
        return None
    amounts = sorted(cheapest.values())
    middle = len(amounts) // 2
    median = amounts[middle] if len(amounts) % 2 else (amounts[middle - 1] + amounts[middle]) // 2
    return PriceRange(least=amounts[0], median=median, most=amounts[-1], places=len(amounts))


@cache
def _rows() -> dict[str, list[list[str]]]:
    """The rows of the list by kind, read as they are: nobody asks for every kind's prices at once."""
    found: dict[str, list[list[str]]] = {}
    with _PRICES.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        for row in rows:
            found.setdefault(row[3], []).append(row)
    return found


def _rental(row: list[str]) -> Rental:
    cloud, region, instance_type, kind, gpus, cpus, memory, on_demand, spot, reserved, bare = row
    return Rental(
        cloud=cloud,
        region=region,
        instance_type=instance_type,
        kind=kind,
        gpus=int(gpus),
        cpus=float(cpus) if cpus else None,
        memory_bytes=round(float(memory) * GIB) if memory else None,
        on_demand=round(float(on_demand) * NANO),
        spot=round(float(spot) * NANO) if spot else None,
        reserved_1y=round(float(reserved) * NANO) if reserved else None,
        bare=bool(bare),
    )


def list_date(cloud: str) -> str | None:
    """The ISO day of a cloud's list; None where the list has no date."""
    return _dates().get(cloud)


@cache
def _dates() -> dict[str, str]:
    with _SOURCES.open(encoding="utf-8", newline="") as file:
        return {row["cloud"]: row["as_of"] for row in csv.DictReader(file) if row["as_of"]}
