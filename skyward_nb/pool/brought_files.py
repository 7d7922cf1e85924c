"""What comes back of the files that a script made on machines, some of which may not be reached."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field

from skyward_nb.providers.provider_protocol import MachineEnded
from skyward_nb.store.remote_store import RemoteStore
from skyward_nb.store.value_messages import FolderFound
from skyward_nb.words.folder_entry import FolderEntry


@dataclass
class BroughtFiles:
    """What was brought: paths here, their bytes; and which files changed each time, or were refused, with words.

    `edited` are files that stay as they are here, by the paths of what was brought instead. `alike` are the entries
    there of files that have the same content here, `there` what each machine had. Of those `unreached` not all came:
    their names, and why.
    """

    paths: list[str] = field(default_factory=list[str])
    size: int = 0
    found: int = 0
    changing: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])
    edited: dict[str, str] = field(default_factory=dict[str, str])
    alike: list[FolderEntry] = field(default_factory=list[FolderEntry])
    there: dict[int, FolderFound] = field(default_factory=dict[int, FolderFound])
    unreached: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def lacks_some(self) -> bool:
        """Whether some files that there are, or may be, did not come."""
        return bool(self.changing or self.refused or self.unreached)


class Unreached(Exception):
    """A machine was not heard to the end: what others have comes none the less."""


@contextlib.contextmanager
def reaching() -> Generator[None]:
    """What a machine says, or that it says nothing: `Unreached` then."""
    try:
        yield
    except (OSError, MachineEnded) as error:
        raise Unreached(getattr(error, "strerror", "") or str(error)) from error


@contextlib.contextmanager
def noting(brought: BroughtFiles, node: int, store: RemoteStore) -> Generator[None]:
    """Note it where the machine of this node is `Unreached`, and go on."""
    try:
        yield
    except Unreached as error:
        brought.unreached[node] = f"{store.name}: {error}"
