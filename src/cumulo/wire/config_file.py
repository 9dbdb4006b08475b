"""The config file of a cloud, `config.yaml` in its state folder: what the admin decides about who gets what next.

All of it may be left out. GPU kinds are named as devices are (`A100-80GB`): a quota of `A100` could mean two things.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from cumulo.catalog.kinds import find, suggest
from cumulo.domain.quantities import NANO, parse_duration
from cumulo.wire.fields import MAX_USD_H, CpusMilli, MemoryBytes, Name, Seconds, type_words
from cumulo.wire.level import Level, about, sentence_of

_AMOUNTS = ("gpus", "cpus", "memory")
Count = Annotated[int, Field(ge=0, le=10_000_000, strict=True)]


def _kind(name: object) -> str:
    """The kind that a key names, in the catalogue's spelling; what the catalogue has nothing like is taken as it is."""
    text = str(name)
    found = [kind.name for kind in find(text)]
    if len(found) > 1:
        raise about(text, "value_error", f"may be {' or '.join(found)}; name one of them")
    if not found and (close := suggest(text) or get_close_matches(text.lower(), _AMOUNTS, n=1, cutoff=0.7)):
        raise about(text, "unknown_key", f"is not known; did you mean {' or '.join(close)}?")
    return found[0] if found else text


def _kinds(data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise ValueError(f"must be a mapping of GPU kinds to numbers, such as A100-80GB: 4, not {type_words(data)}")
    return {_kind(name): count for name, count in data.items()}


Kinds = Annotated[dict[str, Count], BeforeValidator(_kinds)]


def _prices(data: Any) -> Any:
    """USD per hour as nano-USD."""
    return {kind: _nano(kind, usd) for kind, usd in _kinds(data).items()}


def _nano(key: str, usd: object) -> int:
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd <= MAX_USD_H:
        raise about(key, "value_error", f"must be USD per GPU-hour, from 0 to {MAX_USD_H}, not {type_words(usd)}")
    return round(usd * NANO)


def _milli(part: object) -> int:
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part <= 1:
        raise ValueError("must be a part of the on-demand price, from 0 to 1, such as 0.4")
    return round(part * 1000)


def _part(key: str, part: object) -> int:
    try:
        return _milli(part)
    except ValueError as error:
        raise about(key, "value_error", str(error)) from None


def _parts(data: Any) -> Any:
    """Parts by kind, in thousandths."""
    return {kind: _part(kind, part) for kind, part in _kinds(data).items()}


def _floor(data: Any) -> Any:
    """Parts by kind, or one for all of them under `""`."""
    return _parts(data) if isinstance(data, Mapping) else {"": _milli(data)}


def _terms(data: Any) -> Any:
    """Parts by term, in thousandths by seconds."""
    if not isinstance(data, Mapping):
        raise ValueError(f"must be a mapping of terms to numbers, such as 365d: 0.63, not {type_words(data)}")
    found: dict[float, int] = {}
    for term, part in data.items():
        try:
            seconds = parse_duration(term)
        except (ValueError, AttributeError) as error:
            raise about(str(term), "value_error", str(error)) from None
        found[seconds] = _part(str(term), part)
    return found


Prices = Annotated[dict[str, int], BeforeValidator(_prices)]
Floor = Annotated[dict[str, int], BeforeValidator(_floor)]
Terms = Annotated[dict[float, int], BeforeValidator(_terms)]


class PlacementFile(Level):
    """How runs that wait are placed."""

    backfill: bool = Field(default=True, description="runs may start ahead of one that waits if they don't delay it")
    preemption: bool = Field(default=True, description="on-demand and guaranteed runs may stop spot and borrowed ones")
    make_room: bool = Field(default=False, description="runs that are `migratable` may be moved to make room")
    most_moves: Annotated[int, Field(ge=1, le=100)] = Field(default=3, description="how many of them for one run")
    change_sharing_mode: bool = Field(default=True, description="a GPU that is empty may be shared in another way")


class QuotaFile(Level):
    """The most that a project may hold at once. Every other key is a GPU kind."""

    gpus: Count | None = Field(default=None, description="GPUs of all kinds together")
    cpus: CpusMilli | None = Field(default=None, description="CPUs")
    memory: MemoryBytes | None = Field(default=None, description="memory; a bare number is GB")
    kinds: dict[str, Count] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def tidy(cls, data: Any) -> Any:
        """Puts the GPU kinds together."""
        if not isinstance(data, Mapping):
            raise ValueError(f"must be a mapping such as gpus: 8, not {type_words(data)}")
        amounts = {name: value for name, value in data.items() if name in _AMOUNTS and value is not None}
        return amounts | {"kinds": _kinds({name: data[name] for name in data if name not in _AMOUNTS})}


class ProjectFile(Level):
    """What holds for one project."""

    weight: Annotated[float, Field(gt=0, le=1e6)] = Field(default=1.0, description="its part beside others'")
    quota: QuotaFile = Field(default_factory=QuotaFile, description="the most that it may hold at once")
    guaranteed: Kinds = Field(
        default_factory=dict, description="GPUs by kind that it gets whenever it asks; others borrow them meanwhile"
    )


class MarketFile(Level):
    """On which terms GPUs are bought other than on demand. Numbers are parts of the on-demand price: 0.4."""

    spot_floor: Floor = Field(
        default_factory=dict, description="the least spot price: for all kinds, or by kind; what clouds ask if left out"
    )
    reserved: Terms = Field(
        default_factory=dict, description="reserved prices by the least term, such as {30d: 0.85, 365d: 0.63}"
    )
    upfront: Terms = Field(default_factory=dict, description="the same where the whole term is paid when it begins")
    min_run: Annotated[Seconds, Field(ge=0, le=86400)] = Field(
        default=180.0, description="a spot run isn't outbid before it has run so long"
    )
    price_every: Annotated[Seconds, Field(ge=1, le=86400)] = Field(
        default=300.0, description="spot prices rise once in so long at most"
    )


class ConfigFile(Level):
    """A cloud's config."""

    rates: Prices = Field(default_factory=dict, description="what a GPU costs an hour on demand, in USD, by kind")
    market: MarketFile = Field(default_factory=MarketFile, description="what spot and reserved GPUs cost")

    placement: PlacementFile = Field(default_factory=PlacementFile, description="how runs that wait are placed")
    usage_half_life: Annotated[Seconds, Field(ge=60)] = Field(
        default=7 * 86400.0, description="after how long what a project used counts for half"
    )
    projects: dict[Name, ProjectFile] = Field(default_factory=dict, description="what holds for a project, by its name")
    others: ProjectFile = Field(default_factory=ProjectFile, description="what holds for projects that are not named")


def read_config(data: Mapping[str, Any]) -> ConfigFile:
    """Checks what YAML gave. Raises CumuloError `invalid_request` with the path of the key."""
    try:
        return ConfigFile.model_validate(dict(data))
    except ValidationError as error:
        raise sentence_of(error, code="invalid_request") from None
