"""The local engine: instances on this machine, real or emulated nodes."""

from cumulo.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
