"""Cumulo turns GPU machines into a GPU cloud."""

__version__ = "0.1.0"
