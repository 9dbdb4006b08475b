"""The loops that drive what is observed to what is wanted."""

from cumulo.control.control import Control

__all__ = ["Control"]
