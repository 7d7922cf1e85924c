"""The state of a rank's models, kept while all ranks are begun anew since one of them died.

One rank writes a file into its machine's folder of values, as torch saves (`plugins/torch_rescue`); `sky.rejoin`
reads it in the generation that comes next. One of another generation is not looked at: the pool was
restarted since, or the state was not asked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypedDict

_FOLDER = "kept-state"
"""A folder: what is not one, in a folder of values, may be trimmed."""


class KeptModel(TypedDict):
    """The state of a model, and those of its optimizers and their schedules by the names of their classes."""

    model: dict[str, Any]
    others: list[tuple[str, dict[str, Any]]]


class KeptFile(TypedDict):
    """What a rank kept: models, in the order in which they were made; or only `why` nothing can be taken."""

    rank: int
    models: list[KeptModel]
    why: str


class KeptState:
    """The file of this machine that a rank reads which was begun in `generation`."""

    def __init__(self, folder: Path, generation: int) -> None:
        self._folder = folder / _FOLDER
        self._generation = generation

    def path(self) -> Path | None:
        """The file, if there is one."""
        found = self._path(self._generation)
        return found if found.is_file() else None

    def read(self) -> KeptFile:
        """What is in it; raises what torch raises."""
        import torch

        path = self._path(self._generation)
        # Optimizers and schedules may keep any object. The file is of this user's own rank, in a folder of its own.
        return torch.load(path, map_location="cpu", mmap=True, weights_only=False)

    def replace(self, kept: KeptFile) -> None:
        """Keep this in its place, or nothing where there is nothing to be told."""
        if kept["models"] or kept["why"]:
            self._write(kept, self._generation)
        else:
            self._path(self._generation).unlink(missing_ok=True)

    def hand_on(self, generation: int, kept: KeptFile | None) -> bool:
        """Keep this for ranks that are begun in a later generation; None: what nobody has taken yet. Whether there is any."""
        own = self.path()
        if kept is not None:
            self._write(kept, generation)
        elif own is not None:
            own.replace(self._path(generation))
        if self._folder.is_dir():
            for each in set(self._folder.iterdir()) - {self._path(generation)}:
                each.unlink(missing_ok=True)
        return self._path(generation).is_file()

    def _path(self, generation: int) -> Path:
        return self._folder / f"{generation}.pt"

    def _write(self, kept: KeptFile, generation: int) -> None:
        import torch

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / f"part-{os.getpid()}.pt"
        try:
            torch.save(kept, part)
            part.replace(self._path(generation))
        finally:
            part.unlink(missing_ok=True)


here: KeptState | None = None
"""That of this process; None outside a pool."""


def begin(folder: Path, generation: int) -> None:
    """This process is a rank that was begun in a generation, and has values in this folder."""
    global here
    here = KeptState(folder, generation)
