"""How much memory is held on a GPU that does not exist: storages are counted from their first sight to their end."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

BLOCK = 512
"""What CUDA's caching allocator rounds every allocation up to."""


class Memory:
    """Bytes on the GPU that does not exist, by kind, now and at the peak. A storage counts until nothing holds it."""

    def __init__(self) -> None:
        self.kind = "activations"
        self.now: Counter[str] = Counter()
        self.peak = 0
        self.at_peak: Counter[str] = Counter()
        self._known: dict[int, list[Any]] = {}

    def see(self, tensors: Iterable[Any], kind: str | None = None) -> None:
        """Counts what is new of these; what is known keeps its kind, at its new size."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            size = -(-storage.nbytes() // BLOCK) * BLOCK
            key = id(storage)
            entry = self._known.get(key)
            if entry is None:
                entry = [kind or self.kind, 0, weakref.ref(storage, partial(self._gone, key))]
                self._known[key] = entry
            self.now[entry[0]] += size - entry[1]
            entry[1] = size
        total = self.now.total()
        if total > self.peak:
            self.peak, self.at_peak = total, Counter(self.now)

    def label(self, tensors: Iterable[Any], kind: str) -> None:
        """From now on these are of `kind`; what is not on the GPU is passed over."""
        for tensor in tensors:
            entry = self._known.get(id(tensor.untyped_storage()))
            if entry is not None and entry[0] != kind:
                self.now[entry[0]] -= entry[1]
                self.now[kind] += entry[1]
                entry[0] = kind

    def forget_peak(self) -> None:
        self.peak, self.at_peak = self.now.total(), Counter(self.now)

    def _gone(self, key: int, _: object) -> None:
        kind, size, _ = self._known.pop(key)
        self.now[kind] -= size
