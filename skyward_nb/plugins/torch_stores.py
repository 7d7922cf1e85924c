"""Stores of torch by which the ranks of a generation meet.

Where all ranks are on one machine, these are views of a file in a folder that only the pool's owner may enter:
nothing listens, and no other user of the machine reads or changes a key. Else they are connections to the head,
which listens at the address that the other machines reach.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from skyward_nb.plugins.framework_sockets import await_listener
from skyward_nb.plugins.plugin_base import RankContext

_KEYS, _CUT = "keys", ".cut"


class RankStores(Protocol):
    """The stores of one rank in one generation."""

    def open(self, limit: timedelta) -> Any:
        """A store more, whose calls wait no longer than this; raises RuntimeError."""
        ...

    def cut(self) -> bool:
        """Have calls that wait raise RuntimeError, from any thread; whether the group is cut by that."""
        ...

    def close(self) -> None:
        """Let go of what they were made with."""
        ...


def stores_of(place: RankContext) -> RankStores:
    """The stores of this rank at its place."""
    return HeadStores(place) if place.shared is None else FileStores(place.shared, place)


class FileStores:
    """Views of one file; each rank reaches it by a link of its own, which is cut by leading to itself.

    Calls of a `FileStore` open the file anew, so that this ends the calls of one rank.
    """

    def __init__(self, folder: Path, place: RankContext) -> None:
        own = folder / f"store-{place.info.generation}"
        self._link = own / str(place.info.rank)
        self._opened: list[Any] = []
        """Their ends write to the file, too, and torch aborts the process if a cut comes upon that."""
        # The port that ranks know is kept for a server of user code.
        self._reserved = (
            None if (port := place.rendezvous_fd) is None else socket.socket(fileno=port)
        )
        own.mkdir(exist_ok=True)
        own.chmod(0o700)  # whatever umask code has set
        keys = own / _KEYS
        keys.touch()
        keys.chmod(0o600)
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(_KEYS)

    def open(self, limit: timedelta) -> Any:
        """A view of the file."""
        import torch.distributed as dist

        store: Any = dist.FileStore(os.fspath(self._link))  # pyright: ignore[reportPrivateImportUsage]
        store.set_timeout(limit)
        self._opened.append(store)
        return store

    def cut(self) -> bool:
        """Have the link lead to itself: opening it fails at once, so nothing of the group goes on."""
        loop = self._link.with_suffix(_CUT)
        with contextlib.suppress(OSError):  # gone with the pool, or being cut on another thread
            loop.symlink_to(self._link.name)
            loop.replace(self._link)
        return True

    def close(self) -> None:
        """Let go of the port and the stores. The file stays: what torch keeps of the group may look at it yet."""
        self._opened.clear()
        if self._reserved is not None:
            self._reserved.close()


class HeadStores:
    """Connections to the head's server, which listens on the socket that the agent bound for it.

    The server ends with the head's first store.
    """

    def __init__(self, place: RankContext) -> None:
        self._info = place.info
        self._descriptor = place.rendezvous_fd
        self._is_first = True

    def open(self, limit: timedelta) -> Any:
        """A connection; the first one waits for the server, or on the head has it."""
        import torch.distributed as dist

        info, is_first = self._info, self._is_first
        self._is_first = False
        if is_first and not info.is_head:
            await_listener(info.head_addr, info.head_port, limit.total_seconds())
        return dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage] - documented as public
            info.head_addr,
            info.head_port,
            info.world_size if is_first else None,
            is_master=is_first and info.is_head,
            timeout=limit,
            wait_for_workers=False,
            master_listen_fd=self._listening(),
        )

    def cut(self) -> bool:
        """Connections are cut with all others of the framework."""
        return False

    def close(self) -> None:
        """Torch owns the socket of the server."""

    def _listening(self) -> int | None:
        """Open the head's reserved socket for its peers; torch owns the descriptor from then on."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return None
        reserved = socket.socket(fileno=descriptor)
        reserved.listen()
        return reserved.detach()
