"""Help on the magic from a cell with nothing else in it; IPython asks this of every cell, so that it imports little."""

from __future__ import annotations


def lone_help_has_a_body(lines: list[str]) -> list[str]:
    """Give `%%sky_remote --help` with nothing below it an empty line: IPython refuses a magic without a body."""
    if len(lines) == 1 and lines[0].startswith("%%sky_remote"):
        from skyward_nb.options.synonyms import asks_for_help

        if asks_for_help(lines[0]):
            return [lines[0].rstrip("\n") + "\n", "\n"]
    return lines
