"""One level of a file that people write: aliases, "did you mean", and refusal by name of what has not landed.

A key is never ignored. It has an effect, or it is refused: with the nearest known name, or with the reason why not.
"""

import difflib
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from cumulo.domain.errors import KINDS, CumuloError
from cumulo.domain.names import printable

_MAX_TOLD: Final = 20


class Level(BaseModel):
    """A mapping with known keys. `aliases` are other spellings; `refused` are keys and why they have no effect."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    aliases: ClassVar[dict[str, str]] = {}
    refused: ClassVar[dict[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def tidy(cls, data: Any) -> Any:
        """Puts aliases under their own names; refuses keys by name."""
        if isinstance(data, cls):
            return data
        if not isinstance(data, dict):
            raise ValueError("must be a mapping of keys to values")
        tidied: dict[str, Any] = {}
        for key, value in data.items():
            name = cls.aliases.get(key, key)
            if key in cls.refused:
                if value is not None:
                    raise about(key, "not_supported_yet", cls.refused[key])
                continue
            if name not in cls.model_fields:
                raise unknown_key(key, known=tuple(cls.model_fields), also=(*cls.aliases, *cls.refused))
            if name in tidied:
                raise about(key, "given_twice", f"is the same as {name!r}, which is given as well; give one")
            tidied[name] = value
        # A key without a value is a key left out, as in every YAML file with `setup:` and nothing behind it.
        return {name: value for name, value in tidied.items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Aliases stand in the published schema beside the names they mean."""
        schema = handler.resolve_ref_schema(handler(core))
        properties = schema.get("properties", {})
        for alias, name in cls.aliases.items():
            properties[alias] = {**properties[name], "description": f"the same as {name}"}
        return schema


def unknown_key(key: object, *, known: Sequence[str], also: Sequence[str] = ()) -> PydanticCustomError:
    """Refuses a key, with the nearest of `known` and `also`, or else all that are `known`. For validators to raise."""
    near = difflib.get_close_matches(str(key).lower(), [*known, *also], n=1, cutoff=0.7)
    text = f"is not known; did you mean {near[0]!r}?" if near else f"is not known here; known: {', '.join(known)}"
    return about(key, "unknown_key", text)


def about(key: object, kind: str, text: str) -> PydanticCustomError:
    """What is wrong with a key. For validators of what the key stands in to raise."""
    return PydanticCustomError(kind, "{text}", {"key": printable(str(key), 60), "text": text})


def sentence_of(
    error: ValidationError | Sequence[Any], *, code: str = "invalid_run_file", skip: int = 0
) -> CumuloError:
    """One line for what a person did wrong, with the path of the key; all of them under `details.errors`.

    `skip` drops that many parts from the front of each path (the envelope that carried the file).
    """
    errors = error.errors(include_url=False) if isinstance(error, ValidationError) else error
    told = [_told(one, skip) for one in errors[:_MAX_TOLD]]
    path, message, kind = told[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    shown = ".".join(str(part) for part in path)
    return CumuloError(
        kind if kind in KINDS else code,
        f"{shown}: {message}{more}" if shown else f"{message}{more}",
        details={"path": list(path), "errors": [{"path": list(where), "message": what} for where, what, _ in told]},
    )


def _told(error: Any, skip: int) -> tuple[tuple[str | int, ...], str, str]:
    context = error.get("ctx") or {}
    path = tuple(error["loc"])[skip:]
    if "key" in context:
        path = (*path, context["key"])
    cause = context.get("error")
    message = str(cause) if isinstance(cause, Exception) else str(error["msg"])
    if error["type"] == "missing":
        message = "is missing"
    kind = str(error["type"])
    if path and path[-1] == "accelerators" and kind == "value_error":
        kind = "invalid_ask"
    return tuple(part if isinstance(part, int) else printable(str(part), 60) for part in path), message, kind
