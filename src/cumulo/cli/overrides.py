"""The flags of `launch` as keys of a run file, laid over what the file says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

_ALIASES = {"commands": "run", "nodes": "num_nodes", "env": "envs", "gpus": "gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the flags said; None or empty where they said nothing. `command` is what stood after `--`."""

    command: str | None = None
    name: str | None = None
    gpus: str | None = None
    gpu_memory: str | None = None
    sharing: str | None = None
    isolation: str | None = None
    cpus: str | None = None
    memory: str | None = None
    env: tuple[str, ...] = ()
    array: str | None = None
    nodes: int | None = None
    max_duration: str | None = None
    deadline: str | None = None
    work: str | None = None
    priority: int | None = None
    after: tuple[str, ...] = ()
    runtime: str | None = None
    mounts: tuple[str, ...] = ()
    project: str | None = None
    spot: bool = False
    max_price: str | None = None
    reservation: str | None = None
    dev: bool = False

    def over(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """`data` with the flags laid over it. Aliases go under their own names, so that a flag wins over either."""
        merged = {_ALIASES.get(key, key): value for key, value in data.items()}
        plain = {
            "run": self.command, "name": self.name, "array": self.array, "num_nodes": self.nodes,
            "max_duration": self.max_duration, "priority": self.priority, "runtime": self.runtime,
            "project": self.project, "kind": "dev" if self.dev else None, "deadline": self.deadline, "work": self.work,
        }  # fmt: skip
        merged |= {key: value for key, value in plain.items() if value is not None}
        if self.env:
            merged["envs"] = {**_mapping(merged.get("envs")), **dict(map(_variable, self.env))}
        if self.after:
            merged["after"] = [*_listed(merged.get("after")), *self.after]
        if self.mounts:
            merged["mounts"] = [*_listed(merged.get("mounts")), *self.mounts]
        asked = {
            "cpus": self.cpus, "memory": self.memory, "gpu_memory": self.gpu_memory, "sharing": self.sharing,
            "isolation": self.isolation, "use_spot": self.spot or None,
            "max_price": self.max_price, "reservation": self.reservation,
        }  # fmt: skip
        resources = _mapping(merged.get("resources"))
        resources |= {key: value for key, value in asked.items() if value is not None}
        if self.gpus is not None:
            for key in ("accelerators", "gpu", "gpus"):
                resources.pop(key, None)
            merged["gpu"] = self.gpus
        if resources:
            merged["resources"] = resources
        return merged


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    return name, value


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _listed(value: object) -> Sequence[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]
