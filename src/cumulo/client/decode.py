"""JSON to frozen dataclasses and back, by the dataclasses' own annotations.

Lenient where versions may differ: keys the class doesn't know are passed over, and a key that is missing takes the
field's default. A field without a default is one no server may leave out.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from cumulo.domain.errors import CumuloError

T = TypeVar("T")
Converter = Callable[[Any], Any]


def decode(cls: type[T], data: Mapping[str, Any]) -> T:
    """An instance of the dataclass `cls`. Raises CumuloError (`internal`) if a needed key is missing."""
    values: dict[str, Any] = {}
    try:
        for name, optional, convert in _fields(cast(Hashable, cls)):
            if name not in data:
                continue
            value = data[name]
            if value is None:
                if optional:
                    values[name] = None
            else:
                values[name] = convert(value) if convert else value
        return cls(**values)
    except (TypeError, ValueError, AttributeError) as error:
        raise CumuloError(
            "internal",
            f"the server's answer is not a {cls.__name__} ({error})",
            hint="are the server and this client of the same version? `cumulo --version`, `cumulo doctor`",
        ) from None


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, bool, Converter | None], ...]:
    """(name, whether it may be None, what turns JSON into its value) of each field."""
    found = []
    for field in dataclasses.fields(cls):
        wanted: Any = field.type
        arguments = typing.get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
        kinds = [kind for kind in arguments if kind is not type(None)]
        found.append((field.name, len(kinds) < len(arguments), _converter(kinds[0])))
    return tuple(found)


def _converter(kind: Any) -> Converter | None:
    if typing.get_origin(kind) is tuple:
        inner = _converter(typing.get_args(kind)[0])
        return (lambda items: tuple(map(inner, items))) if inner else tuple
    if kind is datetime:
        return datetime.fromisoformat
    if kind is float:
        return float
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return functools.partial(decode, kind)
    return None


def encode(value: Any) -> Any:
    """What `json.dumps` takes: dataclasses as objects, times as ISO 8601 with microseconds and `Z`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value
