"""The blocks of code of README and the pages of docs, and what stands beside each. Pure.

A `python` block is a cell; the cells of a page run in their order, in one kernel. A comment in front of a
block says what differs: `<!-- not run: WHY -->`, `<!-- raises: ValueError -->`. A `text` block right after a
cell has lines that the cell shows, where … stands for anything; after a prompt there, such as `rank 1> p x`,
stands what a person types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"(?:^<!-- *(?P<mark>not run|raises): *(?P<about>.+?) *-->\n)?"
    r"^```(?P<language>[^`\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_TYPED = re.compile(r"(?P<prompt>rank \d+> )(?P<answer>.*)")


def pages() -> list[str]:
    """README and the pages that a person wrote, by their paths."""
    found = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found if path.parent.name != "made")


@dataclass(frozen=True)
class Block:
    """One block of code; `shows` are lines that a cell shows, `typed` prompts with what is answered."""

    language: str
    code: str
    line: int
    not_run: str = ""
    raises: str = ""
    shows: tuple[str, ...] = ()
    typed: tuple[tuple[str, str], ...] = ()


def blocks(text: str) -> list[Block]:
    """The blocks of a page in their order."""
    found: list[Block] = []
    end = -1
    for fence in _FENCE.finditer(text):
        language, code = fence["language"], fence["code"].rstrip("\n")
        if language.startswith("{"):  # a directive of MyST
            continue
        line = text[: fence.start("code")].count("\n") + 1
        if language == "text" and found and not text[end : fence.start()].strip():
            found[-1] = _with_transcript(found[-1], code.split("\n"))
        else:
            marks = {fence["mark"].replace(" ", "_"): fence["about"]} if fence["mark"] else {}
            found.append(Block(language, code, line, **marks))
        end = fence.end()
    return found


def _with_transcript(cell: Block, lines: list[str]) -> Block:
    typed = [_TYPED.fullmatch(line) for line in lines]
    shows = (line for line, answer in zip(lines, typed, strict=True) if line.strip() and not answer)
    answers = ((each["prompt"], each["answer"]) for each in typed if each)
    return replace(cell, shows=tuple(shows), typed=tuple(answers))


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page by its path."""
    return blocks((ROOT / page).read_text())


def not_shown(lines: tuple[str, ...], shown: str) -> list[str]:
    """Those of the lines that a cell was to show and did not."""

    def is_there(line: str) -> bool:
        parts = [re.escape(part.strip()) for part in line.split("…")]
        return bool(re.search(r".*?".join(parts), shown))

    return [line for line in lines if not is_there(line)]
