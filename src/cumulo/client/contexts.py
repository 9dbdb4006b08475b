"""Servers that a person has logged in to, by name, with their tokens: one 0600 file under the XDG config folder."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from cumulo.domain.errors import CumuloError


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One server: its address, the token for it, and the authority behind its certificate if that is no public one."""

    name: str
    url: str
    token: str
    ca_file: str | None = None


@dataclass(slots=True)
class Contexts:
    """All contexts, and which is current. `save` writes them back."""

    path: Path
    current: str | None = None
    known: dict[str, Context] = field(default_factory=dict)

    @classmethod
    def load(cls, env: Mapping[str, str]) -> Self:
        """Reads them; none when there is no file. Raises CumuloError for a file that can't be understood."""
        config = env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or Path.home()) / ".config"
        path = Path(config) / "cumulo" / "contexts.json"
        try:
            data = json.loads(path.read_text())
            known = {name: Context(name=name, **values) for name, values in data["contexts"].items()}
            return cls(path, data.get("current"), known)
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CumuloError(
                "invalid_request",
                f"{path} can't be read as contexts: {error}",
                hint="mend it, or remove it and run `cumulo login URL` again",
            ) from None

    def get(self, name: str) -> Context | None:
        return self.known.get(name)

    def get_current(self) -> Context | None:
        return self.known.get(self.current) if self.current else None

    def by_url(self, url: str) -> Context | None:
        return next((context for context in self.known.values() if context.url == url), None)

    def add(self, context: Context) -> None:
        """Adds or replaces a context and makes it current."""
        self.known[context.name] = context
        self.current = context.name

    def save(self) -> None:
        """Writes the file whole or not at all, readable by its owner only from the first byte."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        contexts = {}
        for name, context in self.known.items():
            contexts[name] = asdict(context)
            del contexts[name]["name"]
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                json.dump({"current": self.current, "contexts": contexts}, file, indent=2)
            os.replace(temporary, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise CumuloError("storage_read_only", f"{self.path} can't be written: {error.strerror}") from None
