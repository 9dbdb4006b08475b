"""How the many spellings of a GPU's name are told to be one.

People type `a100_80gb` or `4090`, NVML reports `NVIDIA A100-SXM4-80GB`, clouds list `RTX-6000-Ada`. A name is
reduced to a key without case, punctuation and the words that carry no information; a name whose key is still
unknown is tried again without the board's form and memory, which then narrow the answer.
"""

import re
from typing import Final, NamedTuple

# Makers, product lines and filler: they never tell two GPUs apart ("Tesla T4" is the T4).
_FILLER: Final = frozenset(
    {"nvidia", "amd", "intel", "corporation", "tesla", "geforce", "quadro", "instinct", "radeon"}
    | {"graphics", "accelerator", "gpu", "generation", "edition", "oam"}
)
_FORM = re.compile(r"sxm\d?|pcie|hbm\d?e?")
_MEMORY = re.compile(r"(\d{1,4})g(?:i?b)?")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")


class Reduced(NamedTuple):
    """`key` is of all the words of a name, `stem` of those that are neither form nor memory."""

    key: str
    stem: str
    memory_gib: int | None


def reduce_name(name: str) -> Reduced:
    """Reduces a GPU's name as typed or reported. The key is empty when nothing but filler was given."""
    words = [word.lower() for word in informative_words(name)]
    memory = [int(match[1]) for word in words if (match := _MEMORY.fullmatch(word))]
    stem = [word for word in words if not _FORM.fullmatch(word) and not _MEMORY.fullmatch(word)]
    return Reduced("".join(words), "".join(stem), memory[-1] if memory else None)


def informative_words(name: str) -> list[str]:
    """The words of a name that tell GPUs apart, in its own case and order."""
    return [word for word in _SEPARATOR.split(name) if word and word.lower() not in _FILLER]
