"""The documents, their fenced blocks and their links."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
DOCUMENTS = (ENGLISH, CHINESE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))

_FENCE = re.compile(r"^```(\S*)$")
_LINK = re.compile(r"(?<!!)\[[^]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block. `line` is that of its first line, 1-based."""

    language: str
    line: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def blocks(text: str, *languages: str) -> list[Block]:
    """The fenced blocks of a document, in order; of these languages if any are named."""
    found: list[Block] = []
    language, begin, inside = "", 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        if begin and line == "```":
            found.append(Block(language, begin, tuple(inside)))
            begin, inside = 0, []
        elif begin:
            inside.append(line)
        elif fence := _FENCE.match(line):
            language, begin = fence[1], number + 1
    if begin:
        raise ValueError(f"the block that begins at line {begin - 1} has no end")
    return [block for block in found if not languages or block.language in languages]


def prose(text: str) -> str:
    """The document without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def links(text: str) -> list[str]:
    return _LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """What `#…` may name in a document, by GitHub's rule."""
    headings = _HEADING.findall(prose(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
