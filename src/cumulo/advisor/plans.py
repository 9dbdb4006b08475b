"""What advice is made of: where GPUs can be had, what so many of them do with the work, and the plan of both.

Amounts of money are integer nano-USD, memory bytes, times seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cumulo.advisor.estimate import Range
from cumulo.catalog.kinds import GpuKind
from cumulo.catalog.variants import Variant
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode

MAX_GPUS: Final = 16_384
CONFIDENCE: Final = 0.8
"""How often the true value lies in a stated range."""

_JOINED_NODE: Final = 4


class Price(NamedTuple):
    """What one GPU (or slice) costs an hour, who says so, and when (an ISO day; None where the list has no date).

    `host_bytes` is the memory of the whole instance, None where its list does not tell.
    """

    nano_h: int
    place: str
    instance_type: str
    as_of: str | None
    host_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """GPUs of one board, in nodes of one size, that can be had in one way.

    `most` is how many there are (None: as many as a cloud has), `free` how many now. Where it stands for a slice,
    `share` of a GPU, it has a `profile` (MIG) or a fraction of a `mode`; `variant` is still the whole board's.
    """

    kind: GpuKind
    variant: Variant
    memory_bytes: int
    per_node: int
    prices: Mapping[PurchaseOption, Price] = field(default_factory=dict)
    roomier: Mapping[PurchaseOption, tuple[Price, ...]] = field(default_factory=dict)
    """Dearer places whose instances have more memory beside the GPUs than any that costs less, cheapest first."""
    own: bool = False
    region: str = ""
    most: int | None = None
    free: int | None = None
    rental_nano_h: int | None = None
    """What one's own would rent for."""
    emulated: bool = False
    mode: SharingMode = SharingMode.EXCLUSIVE
    profile: str = ""
    share: float = 1.0

    def price(self, option: PurchaseOption, host_bytes: float) -> Price | None:
        """The cheapest of an option whose instances have that much memory, as far as lists tell; None if none has."""
        places = (*((self.prices[option],) if option in self.prices else ()), *self.roomier.get(option, ()))
        return next((each for each in places if each.host_bytes is None or each.host_bytes >= host_bytes), None)

    @property
    def joins(self) -> bool:
        """Whether nodes of these work together: what networks smaller instances have, no list tells."""
        return self.own or self.per_node >= _JOINED_NODE

    @property
    def limit(self) -> int:
        """How many of these one run can have. A slice stands alone: no collective crosses from one to another."""
        if self.share < 1:
            return 1
        return MAX_GPUS if self.most is None else min(self.most, MAX_GPUS)

    @property
    def name(self) -> str:
        """`A100-80GB`, `A100-80GB mig 3g.40gb`, `L4 0.5 (mps)`; a board that is not the usual one by its own name."""
        board = self.kind.name if self.variant is self.kind.typical else self.variant.name
        if self.profile:
            return f"{board} mig-{self.profile}"
        return f"{board} {self.share:g} ({self.mode})" if self.share < 1 else board


class Part(NamedTuple):
    """A share of a whole that a person can check: bytes of memory, or seconds of a step."""

    name: str
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One more thing that is estimated: a latency, a rate. `unit` as people write it (`s`, `tokens/s`)."""

    name: str
    value: Range
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a number of GPUs does with the work, wherever they stand.

    `seconds` is of all the work, None where it has no end. `rate` is in units of `unit` a second over all GPUs.
    `memory` is the need of the GPU that needs most, None where it is not known.
    """

    layout: str
    rate: Range
    unit: str
    limit: str
    seconds: Range | None = None
    start_s: float = 0.0
    """Of `seconds`, what passes before the work begins."""
    memory: Range | None = None
    host_bytes: float = 0.0
    """Memory that each GPU takes of its host's, where that is worth asking for."""
    tight: bool = False
    """Whether memory may run out: only the expected need is there, not the upper end of its range."""
    memory_parts: tuple[Part, ...] = ()
    time_parts: tuple[Part, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    working: tuple[str, ...] = ()
    """Lines that derive the numbers."""
    demand: bool = False
    """Whether `rate` is all that is wanted of work without an end: then an hour's price counts, else a unit's."""
    piece: int = 0
    """GPUs that work by themselves, apart from the others; 0 where all work together."""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    """What the program that does it must be told: degrees of parallelism, micro-batch, precision."""


class Refusal(NamedTuple):
    """Why a GPU can't do it: `reason` in a word for counting, `text` for a person."""

    reason: str
    text: str
    short_by: float = 0.0
    """Of memory: by how many bytes on each GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """So many GPUs of a supply, bought in one way, and what they do. `nodes` are instances of a cloud, or one's own."""

    supply: Supply
    gpus: int
    nodes: int
    purchase: PurchaseOption
    price: Price | None
    billed_gpus: int
    estimate: Estimate
    marks: tuple[str, ...] = ()

    @property
    def nano_h(self) -> int | None:
        """Of all GPUs together, also those of a rented node that are not used."""
        return None if self.price is None else self.price.nano_h * self.billed_gpus

    @property
    def cost(self) -> Range | None:
        """Nano-USD of all the work; None where it has no end or no price."""
        seconds, rate = self.estimate.seconds, self.nano_h
        if seconds is None or rate is None:
            return None
        return seconds.scaled(rate / 3600) if rate else Range.exactly(0.0)

    @property
    def unit_cost(self) -> Range | None:
        """Nano-USD for one unit of work."""
        rate = self.nano_h
        if rate is None:
            return None
        return self.estimate.rate.inverted(rate / 3600) if rate else Range.exactly(0.0)
