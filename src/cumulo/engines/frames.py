"""Values of the Engine protocol as JSON and back, by their types, and frames of JSON with bytes beside it.

The types of the protocol are frozen dataclasses, enums, tuples, mappings and plain values, and say all there is to
know; so one reader by type serves them all, and a type added to the protocol crosses without a line here.
"""

import dataclasses
import functools
import json
import struct
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import IO, Any, Literal

_HEAD = struct.Struct(">II")
MAX_FRAME = 1 << 30


class Broken(Exception):
    """The other side is gone, or speaks something else."""


def write_frame(out: IO[bytes], head: Mapping[str, Any], data: bytes = b"") -> None:
    """One frame: lengths, JSON, bytes. The caller sees to it that one frame is written at a time."""
    text = json.dumps(head, separators=(",", ":")).encode()
    out.write(_HEAD.pack(len(text), len(data)) + text + data)
    out.flush()


def read_frame(source: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None at the end. Raises Broken where the end comes in the middle."""
    head = source.read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise Broken("the stream ended within a frame")
    text_size, data_size = _HEAD.unpack(head)
    if text_size > MAX_FRAME or data_size > MAX_FRAME:
        raise Broken("a frame is larger than any that is sent: this is another protocol")
    text, data = source.read(text_size), source.read(data_size) if data_size else b""
    if len(text) < text_size or len(data) < data_size:
        raise Broken("the stream ended within a frame")
    return json.loads(text), data


def encode(value: Any) -> Any:
    """`value` in terms of JSON. A dataclass becomes an object, a set a sorted list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: encode(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(encode(each) for each in value)
    if isinstance(value, tuple | list):
        return [encode(each) for each in value]
    return value


def decode(kind: Any, data: Any) -> Any:
    """The value of type `kind` that `encode` made `data` from. Raises TypeError or KeyError for what is none."""
    if kind is Any or kind is None or kind is type(None):
        return data
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(args, data)
    if origin is Literal:
        return data
    if origin is tuple:
        inner = [args[0]] * len(data) if args[-1] is Ellipsis else args
        return tuple(decode(each, item) for each, item in zip(inner, data, strict=True))
    if origin in (frozenset, set, list):
        return origin(decode(args[0], item) for item in data)
    if origin in (dict, Mapping):
        return {key: decode(args[1], item) for key, item in data.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: decode(hints[name], item) for name, item in data.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is float and isinstance(data, int):
        return float(data)
    return data


def _decode_union(kinds: tuple[Any, ...], data: Any) -> Any:
    """None, or the one dataclass whose fields are all of the data's, or the first that fits."""
    if data is None:
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    if isinstance(data, dict):
        for kind in rest:
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and data.keys() <= _hints(kind).keys():
                return decode(kind, data)
    return decode(rest[0], data)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
