"""Patterns of paths in a folder, such as `runs/*.pt` and `**/*.csv`; both ends read them alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from skyward_nb.words.errors import OptionError


class PathPatterns:
    """Whether one of some patterns matches a path, or a folder that the path is in.

    `*`, `?` and `[a-z]` match within a name, `**` any folders.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [pattern.split("/") for pattern in patterns]

    def __call__(self, path: str) -> bool:
        """Whether one matches this relative path."""
        names = path.split("/")
        return any(_matches(names, pattern) for pattern in self._patterns)


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_matches(names[at:], pattern[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def read_pattern(option: str, text: str) -> str:
    """A pattern as it is matched; raises `OptionError` for one that leads out of the folder."""
    plain = "/".join(part for part in text.split("/") if part not in ("", "."))
    if text.startswith(("/", "~")) or ".." in plain.split("/"):
        raise OptionError(
            option,
            f"{option}={text}: name files in the script's folder by their paths there, such as {option}=runs/*.pt",
        )
    if not plain:
        raise OptionError(option, f"{option}={text}: name files, such as {option}=runs/*.pt")
    return plain
