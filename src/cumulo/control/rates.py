"""What the admin charges for this cloud's own hardware, and on which terms."""

from dataclasses import dataclass, field

from cumulo.domain.sharing import WHOLE_MILLI
from cumulo.market.terms import Terms

__all__ = ["Rates", "Terms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """On demand, nano-USD per GPU-hour by kind; nothing unless set. `terms` say what other purchase options cost.

    A part of a GPU costs its part of that (`Slice.milli`): a fraction as much as was asked for, used or not; a MIG
    instance its share of the GPU's memory, of which the whole instances that fit beside it take the rest.
    """

    gpu_nano_h: dict[str, int] = field(default_factory=dict)
    terms: Terms = field(default_factory=Terms)

    def price_nano_h(self, model: str, milli: int) -> int:
        """Of `milli` thousandths of a GPU, on demand."""
        return self.gpu_nano_h.get(model, 0) * milli // WHOLE_MILLI

    def floor_nano_h(self, model: str) -> int:
        """The least spot price of a GPU."""
        return self.terms.floor_nano_h(model, self.gpu_nano_h.get(model, 0))
