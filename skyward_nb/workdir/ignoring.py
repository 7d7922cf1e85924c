"""Which files of a working folder stay at home: those that `.gitignore` and `.skyignore` name, as git reads these.

The nearest file has the last word, and in one folder `.skyignore` over `.gitignore`. Files of the folders above
count up to the root of the repository. Source: gitignore(5), of which pathspec reads the patterns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyward_nb.words.errors import MissingDependency, OptionError

FILES = (".skyignore", ".gitignore")
"""The files with patterns, the stronger one first."""
_NEVER = frozenset((".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints"))
"""Folders that are of no use elsewhere."""


@dataclass(frozen=True)
class IgnoreRules:
    """The rules in a folder: of each file its patterns, and the path from its folder to this one, the nearest first."""

    files: tuple[tuple[Any, str], ...] = ()

    @classmethod
    def above(cls, root: Path) -> IgnoreRules:
        """The rules that folders above `root` have for it, if it is in a repository."""
        above: list[Path] = []
        for folder in (root, *root.parents):
            if (folder / ".git").exists():
                break
            above.append(folder.parent)
        else:
            return cls()
        rules = cls()
        for folder in reversed(above):
            inner = os.path.relpath(root, folder)
            found = tuple((spec, f"{inner}/") for spec in _specs(os.fspath(folder)))
            rules = cls((*found, *rules.files))
        return rules

    def within(self, name: str, path: str) -> IgnoreRules:
        """The rules in a folder of this name, which is at `path`; the name is "" for the first one."""
        outer = self.files
        if name:
            outer = tuple((spec, f"{inner}{name}/") for spec, inner in outer)
        own = tuple((spec, "") for spec in _specs(path))
        return IgnoreRules((*own, *outer)) if own or name else self

    def leave_out(self, name: str, path: str, *, is_folder: bool) -> bool:
        """Whether what has this name in the folder of these rules, and is at `path`, stays at home."""
        if is_folder and (name in _NEVER or os.path.exists(f"{path}/pyvenv.cfg")):  # noqa: PTH110 - for each
            return True
        for spec, inner in self.files:
            said = spec.check_file(f"{inner}{name}{'/' * is_folder}").include
            if said is not None:
                return bool(said)
        return False


def _specs(folder: str) -> Iterator[Any]:
    """The patterns that files of a folder have; raises `OptionError` for one that is none."""
    for name in FILES:
        path = Path(folder, name)
        if not path.is_file():
            continue
        try:
            from pathspec import GitIgnoreSpec
        except ImportError:
            raise MissingDependency("pathspec", f"{path}", "pip install pathspec") from None
        try:
            yield GitIgnoreSpec.from_lines(path.read_text(errors="surrogateescape").splitlines())
        except OSError as error:
            raise OptionError("folder", f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise OptionError("folder", f"{path}: {error}") from None
