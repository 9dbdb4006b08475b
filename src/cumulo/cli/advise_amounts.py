"""Amounts as people type them for the advisor: `2B` tokens, `1.4M` atoms, `2^24` constraints, `8k` of context."""

import re
from typing import Any

import click

from cumulo.domain.names import printable
from cumulo.domain.quantities import parse_duration

_NUMBER = re.compile(r"(-?\d[\d,_]*\.?\d*(?:e[+-]?\d+)?)\s*([kmbgt]?)", re.IGNORECASE | re.ASCII)
_POWER = re.compile(r"(\d+)\s*(?:\^|\*\*)\s*(\d+)", re.ASCII)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|us|µs)", re.ASCII | re.IGNORECASE)
_BINARY_K = 1024


class Amount(click.ParamType[float]):
    """A positive number with a suffix of thousands, or a power; `whole` gives an int, `binary` makes 8k 8,192."""

    name = "amount"

    def __init__(self, *, whole: bool = False, binary: bool = False) -> None:
        self.whole = whole
        self.binary = binary

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return value
        text = str(value).strip()
        number = _read(text, binary=self.binary)
        if number is None:
            self.fail(f"{printable(text, 60)!r} is not a number; write for example 300, 2B, 1.4M, 5e9 or 2^24", param)
        if not 0 < number < 1e19:
            self.fail(f"{printable(text, 60)}: must be more than nothing and less than 1e19", param)
        if self.whole and number != int(number):
            self.fail(f"{printable(text, 60)}: must be a whole number", param)
        return int(number) if self.whole else number


def _read(text: str, *, binary: bool) -> float | None:
    if power := _POWER.fullmatch(text):
        base, exponent = int(power[1]), int(power[2])
        return float(base**exponent) if base <= 1000 and exponent <= 64 and base**exponent < 1e30 else 1e30
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    suffix = found[2].lower()
    scale = _BINARY_K if suffix == "k" and binary else _SCALE[suffix]
    return float(found[1].replace(",", "").replace("_", "")) * scale


class Time(click.ParamType[float]):
    """A duration in seconds: `500ms`, `24h`, `1d12h`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        if short := _SHORT.fullmatch(text):
            seconds = float(short[1]) * (1e-3 if short[2].lower() == "ms" else 1e-6)
            if seconds > 0:
                return seconds
        try:
            return parse_duration(text)
        except ValueError as error:
            self.fail(str(error), param)


AMOUNT = Amount()
WHOLE = Amount(whole=True)
TOKENS = Amount(whole=True, binary=True)
TIME = Time()
