"""What a script made on machines elsewhere, brought into the folder that it was sent from, in words for its picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from skyward_nb.pool.brought_files import BroughtFiles
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Event
from skyward_nb.words.errors import PoolError, spell_size
from skyward_nb.words.folder_entry import FolderError
from skyward_nb.workdir.patterns import PathPatterns
from skyward_nb.workdir.working_folder import WorkingFolder

_MOST_NAMES = 4


class FetchedFiles(NamedTuple):
    """What came of bringing a run's files: `notes` on them, and whether some that there are did not come."""

    notes: tuple[str, ...] = ()
    lacks_some: bool = False


def fetch_files(
    pool: Pool,
    folder: WorkingFolder | None,
    ranks: Sequence[int],
    watch: Callable[[Event | None], None],
) -> FetchedFiles:
    """Bring the files that a run is asked for. What hinders it is a note, too: the run itself is over."""
    if folder is None or not folder.fetch:
        return FetchedFiles()
    if not folder.key:
        return FetchedFiles(() if _are_here(folder) else (_none(folder),))
    if folder.not_ours:
        names = ",".join(folder.fetch)
        return _nothing(
            f"fetch={names}: nothing was brought, as another client began this run, in {folder.root}: "
            f"`%sky fetch {' '.join(folder.fetch)}` brings it where that folder is",
        )
    if pool.closed:
        return _nothing(
            f"fetch={','.join(folder.fetch)}: the pool is gone, and nothing was brought"
        )
    try:
        brought = pool.sending.folders.bring(folder, ranks, watch)
    except (FolderError, PoolError) as error:
        return _nothing(error.message)
    return FetchedFiles(told(folder, brought), brought.lacks_some)


def _nothing(why: str) -> FetchedFiles:
    return FetchedFiles((why,), lacks_some=True)


def told(folder: WorkingFolder, brought: BroughtFiles) -> tuple[str, ...]:
    """What was brought, in words."""
    unreached = tuple(
        f"of {why}; what else it has did not come: `%sky fetch` tries again"
        for why in brought.unreached.values()
    )
    if not brought.found:
        return unreached or (_none(folder),)
    names = ", ".join(brought.paths[:_MOST_NAMES])
    more = len(brought.paths) - _MOST_NAMES
    names += f" and {more} more" * (more > 0)
    words = [f"brought {names} ({spell_size(brought.size)})"] if brought.paths else []
    if not (words or brought.lacks_some):
        words = [f"{','.join(folder.fetch)}: all of it is here already, or as it was sent"]
    words += [
        f"{name} changes while it is brought, and was left there" for name in brought.changing
    ]
    words += [
        f"{name} was edited here since it was sent, and stays: the script's is {path}"
        for path, name in brought.edited.items()
    ]
    return (*words, *(f"left there: {why}" for why in brought.refused), *unreached)


def _none(folder: WorkingFolder) -> str:
    return f"fetch={','.join(folder.fetch)}: the script's folder has no such file"


def _are_here(folder: WorkingFolder) -> bool:
    """Whether something in the folder matches, where the script ran in it."""
    match = PathPatterns(folder.fetch)
    for path, folders, files in os.walk(folder.root):
        inner = Path(path).relative_to(folder.root)
        if any(match(os.fspath(inner / name)) for name in (*folders, *files)):
            return True
    return False
