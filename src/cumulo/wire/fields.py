"""How single values of a run file may be written, each with its JSON Schema and a sentence for what is wrong.

People write `A100:8`, `{A100: 8}` or `8`; `90`, `"1h30m"`; `4`, `"4+"`. Each reader here takes what YAML or JSON gave
and returns one plain type, or raises ValueError.
"""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from cumulo.domain.ask import AskError, GpuAsk, parse_gpu_ask
from cumulo.domain.names import check_name, printable
from cumulo.domain.quantities import NANO, parse_cpus, parse_duration, parse_memory
from cumulo.domain.run import MAX_ARRAY, Array
from cumulo.wire.deadline import read_deadline

MAX_SCRIPT: Final = 256 << 10
MAX_ENV_VALUE: Final = 64 << 10
MAX_USD_H: Final = 10_000
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ARRAY = re.compile(r"(\d+)-(\d+)(?::(\d+))?(?:%(\d+))?")


def _shown(value: object) -> str:
    return printable(repr(value), 60)


def read_name(value: object) -> str:
    """A run's or project's name. A number that YAML made of it is taken as written."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{_shown(value)} is not a name")
    return check_name(str(value))


def read_gpus(value: object) -> str:
    """An ask for GPUs in canonical form, from `A100:8`, 8, `{A100: 8}` or a list of alternatives with one count."""
    if isinstance(value, dict):
        return _one_count([f"{name}:{1 if count is None else count}" for name, count in value.items()])
    if isinstance(value, list):
        return _one_count([str(part) for part in value])
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is not an ask for GPUs; write for example A100:8")
    text = str(value)
    if len(text) > 256:
        raise ValueError("an ask for GPUs is at most 256 characters long")
    try:
        return parse_gpu_ask(text).canonical
    except AskError as error:
        raise ValueError(str(error)) from None


def _one_count(parts: list[str]) -> str:
    """Alternatives as people list them for SkyPilot. Ours are names in one ask, so their counts must agree."""
    if not 1 <= len(parts) <= 32:
        raise ValueError("give 1 to 32 kinds of GPU")
    asks = [parse_gpu_ask(read_gpus(part)) for part in parts]
    first = asks[0]
    if any(_without_names(ask) != _without_names(first) for ask in asks) or not all(ask.names for ask in asks):
        raise ValueError("alternatives must ask for the same number of GPUs; write for example A100,H100:8")
    names = tuple(dict.fromkeys(name for ask in asks for name in ask.names))
    return read_gpus(":".join([",".join(names), *_without_names(first).split(":")]))


def _without_names(ask: GpuAsk) -> str:
    text = ask.canonical
    return text.split(":", 1)[1] if ask.names and ":" in text else ("1" if ask.names else text)


def read_duration(value: object) -> float:
    """Seconds. 0 is allowed where a limit may be nothing; the field says so by its bounds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is not a duration; write for example 90s, 30m, 12h or 1d12h")
    if value in (0, "0", "0s"):
        return 0.0
    return parse_duration(value)


def read_cpus(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is not a number of CPUs; write for example 4 or 0.5")
    return parse_cpus(value)


def read_memory(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)} is not an amount of memory; write for example 16GB or 512MB")
    if isinstance(value, str) and re.search(r"x\s*$", value):
        raise ValueError(f"{_shown(value)}: memory in multiples of CPUs is not known here; write for example 16GB")
    size = parse_memory(str(value).strip().removesuffix("+") if isinstance(value, str) else value)
    if size > 1 << 50:
        raise ValueError(f"{_shown(value)}: memory must be at most 1024 TB")
    return size


def read_price(value: object) -> int:
    """Nano-USD per hour from USD: `0.8`, `"0.80"`, `"$0.80"`."""
    wrong = f"{_shown(value)} is not a price; write USD per hour, such as 0.80"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(wrong)
    try:
        usd = float(value.strip().removeprefix("$")) if isinstance(value, str) else float(value)
    except ValueError:
        raise ValueError(wrong) from None
    if not 0 < usd <= MAX_USD_H:
        raise ValueError(f"{_shown(value)}: a price must be more than 0 and at most {MAX_USD_H} USD per hour")
    return round(usd * NANO)


def read_script(value: object) -> str:
    """A shell script: text, or a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a command; write text or a list of lines")
    if "\0" in value:
        raise ValueError("a command may not contain a NUL character")
    if len(value) > MAX_SCRIPT:
        raise ValueError(f"a command is at most {MAX_SCRIPT >> 10} kB long; put it into a file of the workdir")
    return value


def read_env(value: object) -> dict[str, str]:
    """Environment variables: names a shell accepts, values text, numbers or booleans as they were written."""
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of names to values, such as {EPOCHS: 3}")
    if len(value) > 1000:
        raise ValueError("at most 1000 variables can be set")
    return {_env_name(name): _env_value(name, given) for name, given in value.items()}


def _env_name(name: object) -> str:
    if not isinstance(name, str) or not _ENV_NAME.fullmatch(name) or len(name) > 256:
        raise ValueError(f"{_shown(name)} can't name an environment variable: use letters, digits and '_'")
    return name


def _env_value(name: str, value: object) -> str:
    if value is None:
        raise ValueError(f"{name} has no value; give one here or with --env {name}=…")
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError(f"{name} must be text, a number or a boolean, not {_shown(value)}")
    text = str(value)
    if "\0" in text or len(text) > MAX_ENV_VALUE:
        raise ValueError(f"{name} must be without NUL characters and at most {MAX_ENV_VALUE >> 10} kB long")
    return text


def read_array(value: object) -> str:
    """An array in canonical form: `0-499`, `0-499:5`, `0-499%16`."""
    return parse_array(value if isinstance(value, str) else _shown(value)).canonical


def parse_array(text: str) -> Array:
    """Indices `FIRST-LAST[:STEP][%PARALLEL]`. Raises ValueError with a sentence."""
    match = _ARRAY.fullmatch(text.replace(" ", ""))
    if not match or any(len(part or "") > 12 for part in match.groups()):
        raise ValueError(f"{_shown(text)} is not an array; write for example 0-499 or 0-499%16 (16 at once)")
    array = Array(
        first=int(match[1]),
        last=int(match[2]),
        step=int(match[3] or 1),
        parallel=int(match[4]) if match[4] else None,
    )
    if array.step < 1 or array.parallel == 0:
        raise ValueError(f"{_shown(text)}: the step and the number at once must be at least 1")
    if array.last < array.first:
        raise ValueError(f"{_shown(text)}: the array is empty: {array.last} is less than {array.first}")
    if len(array) > MAX_ARRAY:
        raise ValueError(f"{_shown(text)}: an array has at most {MAX_ARRAY} indices")
    return array


def read_pattern(value: object) -> str:
    """A regular expression over the log with one or two groups: done, and total."""
    if not isinstance(value, str) or not 0 < len(value) <= 500:
        raise ValueError("must be a regular expression of at most 500 characters")
    import regex  # what looks for progress; only a file with a pattern pays for it

    try:
        groups = regex.compile(value).groups
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if not 1 <= groups <= 8:
        raise ValueError("needs a group for what is done and may have one for the total, such as '(\\d+)/(\\d+)'")
    return value


def read_names(value: object) -> list[str]:
    """One run or several, by name or id."""
    several = value if isinstance(value, list) else [value]
    if len(several) > 100:
        raise ValueError("at most 100 runs can be waited for")
    return [read_name(one) for one in several]


def read_mounts(value: object) -> list[str]:
    """Folders of the machine that the run sees under the same path: absolute, or `~`."""
    if not isinstance(value, list) or len(value) > 64:
        raise ValueError("must be a list of at most 64 folders, such as [/data, ~]")
    return [_mount(one) for one in value]


def _mount(value: object) -> str:
    if value is None:  # YAML reads a bare ~ as null
        return "~"
    if not isinstance(value, str) or not value.startswith(("/", "~")) or "\0" in value or len(value) > 4096:
        raise ValueError(f"{_shown(value)} can't be mounted: write an absolute path or ~")
    if ".." in value.split("/"):
        raise ValueError(f"{_shown(value)} can't be mounted: '..' is not allowed in it")
    return value


Name = Annotated[
    str,
    BeforeValidator(read_name),
    WithJsonSchema({"type": "string", "pattern": r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"}),
]
Gpus = Annotated[
    str,
    BeforeValidator(read_gpus),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    ),
]
Seconds = Annotated[float, BeforeValidator(read_duration), WithJsonSchema({"type": ["string", "number"]})]
DeadlineText = Annotated[str, BeforeValidator(read_deadline), WithJsonSchema({"type": ["string", "number"]})]
CpusMilli = Annotated[int, BeforeValidator(read_cpus), WithJsonSchema({"type": ["string", "number"]})]
MemoryBytes = Annotated[int, BeforeValidator(read_memory), WithJsonSchema({"type": ["string", "number"]})]
Price = Annotated[int, BeforeValidator(read_price), WithJsonSchema({"type": ["string", "number"]})]
Script = Annotated[
    str,
    BeforeValidator(read_script),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Env = Annotated[
    dict[str, str],
    BeforeValidator(read_env),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
ArrayText = Annotated[
    str, BeforeValidator(read_array), WithJsonSchema({"type": "string", "pattern": r"^\d+-\d+(:\d+)?(%\d+)?$"})
]
Pattern = Annotated[str, BeforeValidator(read_pattern), WithJsonSchema({"type": "string", "format": "regex"})]
RunNames = Annotated[
    list[str],
    BeforeValidator(read_names),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Mounts = Annotated[
    list[str], BeforeValidator(read_mounts), WithJsonSchema({"type": "array", "items": {"type": ["string", "null"]}})
]


def type_words(value: Any) -> str:
    """What a value is, in the words of YAML, for messages."""
    words = {dict: "a mapping", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return words.get(type(value), "nothing")
