"""Every path that the pages for developers and users name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    *(
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("docs/**/*.md"))
        if path.parent.name != "made"
    ),
]
_QUOTED = re.compile(r"`([^`\s]+)`")
_PATH = re.compile(r"[\w.-]+(/[\w.-]*)*")
_FILE = re.compile(r"\.(?:cfg|css|html|ini|ipynb|json|md|py|sh|toml|txt)$")
_MADE = ("build/", "dist/", ".venv/", "sky-profile/")
"""Folders that commands make."""


def found(path: str, folders: list[Path]) -> Path | None:
    """Where a path is, which may be a module without `.py`, and end with a name that the module has."""
    module, _, name = path.rpartition(".")
    for folder in folders:
        for each in (folder / path, folder / f"{path}.py"):
            if each.exists():
                return each
        there = folder / f"{module}.py"
        if there.exists() and re.search(rf"^(def |class )?{name}\b", there.read_text(), re.M):
            return there
    return None


def missing(text: str, root: Path) -> list[str]:
    """Paths of a page that lead nowhere. They start at the top, at the package, or where one before them on the line is."""
    lacks = []
    for number, line in enumerate(text.splitlines(), start=1):
        folders = [root, root / "skyward_nb"]
        for path in _QUOTED.findall(line):
            is_path = _PATH.fullmatch(path) and ("/" in path or _FILE.search(path))
            if not is_path or path.startswith(_MADE):
                continue
            there = found(path, folders)
            if there is None:
                lacks.append(f"line {number}: {path}")
            else:
                folders.append(there if there.is_dir() else there.parent)
    return lacks


@pytest.mark.parametrize("page", PAGES)
def test_every_path_named_is_there(page):
    assert missing((ROOT / page).read_text(), ROOT) == []


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("`pool/run_state.py`, `state.py`", []),
        ("`pool/run_state`, `pool/run_state.RunState`, `tests/pool/`", []),
        ("`notebook/left.py`", ["notebook/left.py"]),
        ("`pool/run_state.Nobody`", ["pool/run_state.Nobody"]),
        ("`ledger.py`", ["ledger.py"]),
        ("`build/durations.json`, `sky.log(loss=1)`, `a/b c`", []),
    ],
)
def test_what_counts_as_a_path_that_is_there(line, lacks):
    assert missing(line, ROOT) == [f"line 1: {each}" for each in lacks]
