"""Writes the parts of docs/ that the code knows best: commands, URLs, models, error codes, keys of the run file.

    python tools/docs.py            # fills them in
    python tools/docs.py --check    # changes nothing; exit code 1 names each document that is not current

A part stands between `<!-- generated: NAME -->` and `<!-- /generated -->`; all around it is written by hand. NAME
stands in `PARTS`. docs/run-file.schema.json is written whole.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

DOCS = Path(__file__).resolve().parents[1] / "docs"
PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n)(.*?)(<!-- /generated -->)", re.DOTALL)
WIDTH = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing, only say what is not current")
    check = parser.parse_args().check
    stale = [path for path, text in written().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path.name} is not current: run `python tools/docs.py`", file=sys.stderr)
        else:
            path.write_text(written()[path])
            print(f"wrote {path.name}")
    return int(check and bool(stale))


def written() -> dict[Path, str]:
    """Every document with its generated parts as they should be. Raises KeyError for a part that nobody makes."""
    from cumulo.wire.run_file import schema

    texts = {path: PART.sub(_filled, path.read_text()) for path in sorted(DOCS.glob("*.md"))}
    return texts | {DOCS / "run-file.schema.json": json.dumps(schema(), indent=2) + "\n"}


def _filled(found: re.Match[str]) -> str:
    body = "\n".join(PARTS[found[2]]()).strip("\n")
    return f"{found[1]}\n{body}\n\n{found[4]}"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table; nothing where there are no rows."""
    if rows:
        yield f"| {' | '.join(head)} |"
        yield f"|{'---|' * len(head)}"
        yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
        yield ""


# ---- the command line -----------------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    """Every command with its help, in the order and under the headings of `cumulo --help`."""
    from cumulo.cli.main import ALIASES, COMMANDS, cumulo

    top = click.Context(
        cumulo, info_name="cumulo", max_content_width=WIDTH, terminal_width=WIDTH, **cumulo.context_settings
    )
    for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
        yield from (f"## {section}", "")
        for name in (name for name, entry in COMMANDS.items() if entry.section == section):
            command = cumulo.get_command(top, name)
            assert command is not None  # noqa: S101 (it stands in the table)
            aliases = [alias for alias, meant in ALIASES.items() if meant == name]
            yield from _command(command, name, top, aliases)


def _command(command: click.Command, name: str, parent: click.Context, aliases: list[str]) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, max_content_width=WIDTH, terminal_width=WIDTH)
    yield from (f"### {context.command_path}", "")
    if aliases:
        yield from (f"Also: {', '.join(f'`cumulo {alias}`' for alias in aliases)}.", "")
    yield from ("```text", command.get_help(context).rstrip(), "```", "")
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None  # noqa: S101
            yield from _command(found, child, context, [])


# ---- the run file ---------------------------------------------------------------------------------------------------


def _keys(level: Any, prefix: str = "") -> Iterator[str]:
    """The keys of one level of the run file."""
    properties = level.model_json_schema(mode="validation")["properties"]
    aliases = {
        name: [alias for alias, meant in level.aliases.items() if meant == name] for name in level.aliases.values()
    }
    rows = []
    for name, field in level.model_fields.items():
        also = ", ".join(f"`{alias}`" for alias in aliases.get(name, []))
        rows.append((f"`{prefix}{name}`", also, _kind(properties[name]), _default(field), field.description or ""))
    yield from table(("key", "also", "written as", "default", "what it is"), rows)


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or value in ({}, [], ()) or not isinstance(value, str | int | float | list):
        return ""
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`".replace('"', "")


def _kind(schema: Mapping[str, Any]) -> str:
    """What a value may be, in a few words."""
    if "$ref" in schema or schema.get("allOf"):
        return "mapping"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"] if one.get("type") != "null"))
    words = {"object": "mapping", "array": "list", "string": "text", "integer": "number", "null": ""}
    kinds = schema.get("type", "")
    found = [words.get(kind, kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]
    return " or ".join(dict.fromkeys(word for word in found if word))


def run_file_keys() -> Iterator[str]:
    from cumulo.wire.run_file import RunFile

    return _keys(RunFile)


def run_file_resources() -> Iterator[str]:
    from cumulo.wire.run_file import ResourcesFile

    return _keys(ResourcesFile, "resources.")


def run_file_retry() -> Iterator[str]:
    from cumulo.wire.run_file import RetryFile

    return _keys(RetryFile, "retry.")


def run_file_refused() -> Iterator[str]:
    from cumulo.wire.run_file import ResourcesFile, RunFile

    levels = (("", RunFile), ("resources.", ResourcesFile))
    rows = [(f"`{prefix}{key}`", reason) for prefix, level in levels for key, reason in level.refused.items()]
    return table(("key", "what is said"), rows)


# ---- the HTTP API ---------------------------------------------------------------------------------------------------


def _openapi() -> dict[str, Any]:
    """OpenAPI of all routes, with enumerations where they are used: they need no heading of their own."""
    from cumulo.server.app import make_api

    described = make_api().openapi()
    schemas = described["components"]["schemas"]
    enums = {f"#/components/schemas/{name}": one for name, one in schemas.items() if "enum" in one}
    return cast("dict[str, Any]", _inlined(described, enums))


def _inlined(value: Any, enums: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return enums.get(value.get("$ref", "")) or {key: _inlined(one, enums) for key, one in value.items()}
    return [_inlined(one, enums) for one in value] if isinstance(value, list) else value


def urls() -> Iterator[str]:
    """The table of URLs that opens `cumulo.server.routes`, as a Markdown table."""
    from cumulo.server import routes

    lines = (line.split(None, 2) for line in (routes.__doc__ or "").splitlines())
    rows = [(f"`{parts[0]}`", f"`{parts[1]}`", parts[2]) for parts in lines if len(parts) == 3 and parts[1][0] == "/"]
    return table(("verb", "path", "what it does"), rows)


def operations() -> Iterator[str]:
    """Each operation: what it takes and what it answers."""
    for path, methods in _openapi()["paths"].items():
        for method, operation in methods.items():
            yield from (f"### {method.upper()} {path}", "")
            if text := operation.get("description"):
                yield from (text, "")
            yield from table(("parameter", "in", "type", "what it is"), [_parameter(p) for p in _parameters(operation)])
            if body := operation.get("requestBody"):
                yield from (f"Body: {_contents(body['content'])}.", "")
            answers = [(code, one) for code, one in operation["responses"].items() if code != "default"]
            told = [f"{code} {_contents(one.get('content', {})) or 'without a body'}" for code, one in answers]
            yield from (f"Answer: {'; '.join(told)}.", "")


def _parameters(operation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those worth a row: not what the path says already, and not `Accept`, which is told in words."""
    found = operation.get("parameters", [])
    return [one for one in found if one["name"] != "accept" and (one["in"] != "path" or one.get("description"))]


def _parameter(one: Mapping[str, Any]) -> tuple[str, ...]:
    default = one["schema"].get("default")
    told = "" if default in (None, "") else f"default `{json.dumps(default).strip(chr(34))}`"
    what = "; ".join(part for part in (one.get("description", ""), told) if part)
    return f"`{one['name']}`", one["in"], _type(one["schema"]).removesuffix(" or null"), what


def _contents(content: Mapping[str, Any]) -> str:
    """The media types of a body, with the model where it is JSON."""
    told = []
    for media, one in content.items():
        shape = _type(one["schema"]) if one.get("schema") and "json" in media else ""
        told.append(shape or f"`{media}`")
    return " or ".join(told)


def models() -> Iterator[str]:
    """Every model of bodies and answers."""
    for name, schema in sorted(_openapi()["components"]["schemas"].items()):
        if name in ("RunFile", "ResourcesFile", "RetryFile") or "properties" not in schema:
            continue  # they have a document of their own; an enumeration has no keys
        yield from (f"### {name}", "")
        if text := schema.get("description"):
            yield from (text, "")
        rows = [(f"`{key}`", _type(one), one.get("description", "")) for key, one in schema["properties"].items()]
        yield from table(("key", "type", "what it is"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    """A JSON Schema as a few words, with links to models."""
    if ref := schema.get("$ref"):
        name = ref.rpartition("/")[2]
        return "[RunFile](run-file.md)" if name == "RunFile" else f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "")
    if isinstance(kind, list):
        return " or ".join(_type({"type": one}) for one in kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    if kind == "object":
        more = schema.get("additionalProperties")
        return f"map to {_type(more)}" if isinstance(more, dict) and _type(more) else "map"
    if schema.get("format") == "date-time":
        return "time"
    return {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean", "null": "null"}.get(
        kind, ""
    )


def errors() -> Iterator[str]:
    """The codes of failures."""
    from cumulo.domain.errors import KINDS

    rows = [(f"`{kind.code}`", str(kind.http_status), str(kind.exit_code), kind.title) for kind in KINDS.values()]
    return table(("code", "HTTP status", "exit code", "meaning"), rows)


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "commands": commands,
    "run-file-keys": run_file_keys,
    "run-file-resources": run_file_resources,
    "run-file-retry": run_file_retry,
    "run-file-refused": run_file_refused,
    "urls": urls,
    "operations": operations,
    "models": models,
    "errors": errors,
}

if __name__ == "__main__":
    sys.exit(main())
