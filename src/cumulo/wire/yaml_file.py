"""Reads the YAML people write, keeping the line of every key so that an error can point at it.

A safe loader with four differences, each against a known accident: a key given twice is refused instead of the last one
winning; only `true` and `false` are booleans (YAML 1.1 reads the country code `NO` as false); times and base-60
numbers stay text (`1:30:00` is not 5400, `2026-01-01` is not a date); aliases may not blow a small file up into a
huge one.

No pydantic here: the command line reads a file and fails on its syntax without paying for models.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from cumulo.domain.errors import CumuloError

MAX_BYTES: Final = 1 << 20
_MAX_NODES: Final = 100_000
_MAX_DEPTH: Final = 32

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A mapping read from YAML. `lines` has the 1-based line of every key and list item, by its path."""

    source: str
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def line_of(self, path: KeyPath) -> int | None:
        """The line of the nearest enclosing key that is in the file; None for the empty path."""
        for end in range(len(path), 0, -1):
            if line := self.lines.get(path[:end]):
                return line
        return None

    def point(self, error: CumuloError) -> CumuloError:
        """`error` with the file and line before its message, if it tells the path of a key of this file."""
        path = tuple(error.details.get("path", ()))
        line = self.line_of(path)
        where = f"{self.source}:{line}" if line else self.source
        details = {**error.details, "file": self.source, "line": line}
        return CumuloError(error.code, f"{where}: {error.message}", hint=error.hint, details=details)


def read_yaml(text: str | bytes, *, source: str = "run file", key: str = "run", empty: bool = False) -> Document:
    """Reads one mapping, with keys such as `key`. Raises CumuloError (invalid_run_file) naming source, line and column.

    `empty`: a file that says nothing is a mapping without keys.
    """
    if len(text) > MAX_BYTES:
        raise _invalid(source, None, f"larger than {MAX_BYTES >> 20} MB")
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        root = _compose(decoded)
        reader = _Reader(source)
        data = reader.read(root, (), 0) if root is not None else None
        data = {} if data is None and empty else data
    except UnicodeDecodeError as error:
        raise _invalid(source, None, f"not UTF-8 text (byte {error.start})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise _invalid(source, line, _sentence(error)) from None
    except yaml.YAMLError as error:
        raise _invalid(source, None, " ".join(str(error).split())) from None
    except RecursionError:
        raise _invalid(source, None, f"nested deeper than {_MAX_DEPTH} levels") from None
    if not isinstance(data, dict):
        found = "empty" if data is None else f"a {_TYPE_WORDS.get(type(data), 'value')}"
        raise _invalid(source, None, f"must be a mapping of keys such as '{key}:', but is {found}")
    return Document(source=source, data=data, lines=reader.lines)


_COLLECTIONS: Final = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_TYPE_WORDS: Final = {list: "list", str: "text", int: "number", float: "number", bool: "boolean"}


def _sentence(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join((error.problem or "not valid YAML").split())
    if "found character '\\t'" in problem:
        return "a tab is used for indentation; YAML wants spaces"
    context = f" ({error.context})" if error.context else ""
    return f"not valid YAML: {problem}{context}"


def _invalid(source: str, line: int | None, message: str) -> CumuloError:
    where = f"{source}:{line}" if line else source
    return CumuloError("invalid_run_file", f"{where}: {message}", details={"file": source, "line": line, "path": []})


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's few implicit types."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own shape)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


class _Reader:
    """Turns composed nodes into plain data, counting what it makes: an alias is counted each time it is used."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[KeyPath, int] = {}
        self._made = 0

    def read(self, node: yaml.Node, path: KeyPath, depth: int) -> Any:
        self._made += 1
        if self._made > _MAX_NODES:
            raise _invalid(self.source, _line(node), f"more than {_MAX_NODES} values, aliases included")
        if depth > _MAX_DEPTH:
            raise _invalid(self.source, _line(node), f"nested deeper than {_MAX_DEPTH} levels")
        if path:
            self.lines.setdefault(path, _line(node))
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
            raise self._tag_refused(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, place), depth + 1) for place, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                value = self.read(value_node, (), depth + 1)
                for part in reversed(value if isinstance(value, list) else [value]):
                    merged |= part if isinstance(part, dict) else {}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise _invalid(self.source, _line(key_node), "a key must be a plain word")
            key = str(key_node.value)
            if key in found:
                raise _invalid(self.source, _line(key_node), f"the key {key!r} is given twice")
            self.lines[(*path, key)] = _line(key_node)
            found[key] = self.read(value_node, (*path, key), depth + 1)
        return merged | found

    def _scalar(self, node: yaml.Node) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        text = str(node.value)
        if kind in ("int", "float") and len(text) > 32:
            raise _invalid(self.source, _line(node), "the number is too long; quote it if it is text")
        try:
            match kind:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
                case "float":
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            raise _invalid(self.source, _line(node), f"{text!r} is not what its tag says") from None
        raise self._tag_refused(node)

    def _tag_refused(self, node: yaml.Node) -> CumuloError:
        return _invalid(self.source, _line(node), f"the YAML tag {node.tag!r} is not allowed here")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
