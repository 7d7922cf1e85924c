"""The words of a `plan=` of `sky.parallelize`, for torch and JAX, and what is said of others. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

WORDS = ("colwise", "rowwise", "gather", "replicate")
"""The words that a person may write; in JAX `gather` is `colwise`, as the compiler gathers."""


def unknown_word(pattern: str, word: object, instead: str) -> ValueError:
    """The error for a word that is not one of these; `instead` is the framework's own way to say it."""
    return ValueError(
        f"sky.parallelize: {pattern}: {word!r} is not one of {', '.join(WORDS)}; or give a {instead}"
    )


def near_name(pattern: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing; patterns are far from names, as they have stars."""
    near = difflib.get_close_matches(pattern, list(names), 1, 0.4)
    return f"; did you mean {near[0]!r}?" if near else ""
