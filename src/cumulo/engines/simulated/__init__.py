"""The simulated engine: it starts nothing, and answers like the local one, for clouds larger than the machine."""

from cumulo.engines.simulated.engine import SimulatedEngine

__all__ = ["SimulatedEngine"]
