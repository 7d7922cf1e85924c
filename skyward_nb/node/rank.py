"""The life of a rank: ready its frameworks, then run cells in one namespace until told to go."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import socket
import sys
import traceback
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from skyward_nb.node.capture import Capture
from skyward_nb.node.exceptions import pack_exception
from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.shell import RankShell
from skyward_nb.node.uplink import Uplink, encodable
from skyward_nb.plugins.base import Place, find_plugin
from skyward_nb.runtime import outlet
from skyward_nb.wire.blobs import BlobStore
from skyward_nb.wire.payload import home, pack, set_home, unpack
from skyward_nb.words.errors import PayloadError
from skyward_nb.words.messages import (
    Failure,
    Packed,
    PluginUse,
    RankDone,
    RankReady,
    RankRefused,
    Run,
    Unsendable,
)

_MISSING = object()


class Rank:
    """One rank's process, from just after its fork."""

    def __init__(
        self,
        place: Place,
        connection: socket.socket,
        pipes: tuple[int, int],
        shell: RankShell,
        store: BlobStore,
    ) -> None:
        self.info = place.info
        self._place = place
        self._shell = shell
        self._store = store
        self._uplink = Uplink(connection, self.info.rank)
        self._capture = Capture(self._uplink, *pipes)
        self._mailbox = Mailbox(connection, self._uplink)
        outlet.connect(self._uplink.emit)
        shell.connect(self.info.rank, self._uplink.emit)
        set_home(shell.user_ns)
        _leave_with_the_last_words(self._uplink)

    def live(self, plugins: tuple[PluginUse, ...]) -> None:
        """Ready the plugins, say so, and run cells until the agent hangs up."""
        self._mailbox.close()
        _fresh_randomness()
        with ExitStack() as frameworks:
            try:
                for use in plugins:
                    entered = find_plugin(use.name).enter(self._place, use.options)
                    frameworks.enter_context(entered)
            except Exception as error:  # noqa: BLE001 - whatever a framework raises is told
                message = f"{type(error).__name__}: {error}"
                refused = RankRefused(
                    self.info.generation, self.info.rank, message, traceback.format_exc()
                )
                self._uplink.emit(refused)
                return
            self._capture.repair()
            self._uplink.emit(RankReady(self.info.generation, self.info.rank, os.getpid()))
            while (command := self._mailbox.next()) is not None:
                if isinstance(command, Run):
                    self._uplink.emit(self._run(command))
            # Peers are going, too: a framework's orderly farewell would wait for them.
            self._uplink.flush()
            os._exit(0)

    # ── one run ─────────────────────────────────────────────────────────────────────────

    def _run(self, command: Run) -> RankDone:
        rank = self.info.rank
        try:
            self._install(command)
        except Exception as error:  # noqa: BLE001 - unpickling runs a user's code
            # Nothing was bound: the names are to be sent again.
            names = tuple(item.name for item in command.names)
            self._shell.showtraceback((type(error), error, error.__traceback__))
            failure = self._failure(error)
            return RankDone(run=command.run, rank=rank, dropped=names, failure=failure)
        namespace = self._shell.user_ns
        before = {name: _remember(name, namespace, command.sure) for name in command.writes}
        value: object = None
        error: BaseException | None = None
        try:
            self._mailbox.open(command.run)
            value = self._shell.run(command)
            self._mailbox.close()
        except BaseException as raised:  # noqa: BLE001 - a user's code may raise anything
            self._mailbox.close()
            error = raised
        self._capture.repair()
        done = RankDone(
            run=command.run,
            rank=rank,
            assigned=_assigned(namespace, before, command.sure if error is None else ()),
            dropped=tuple(name for name in before if name not in namespace),
            interrupted=isinstance(error, KeyboardInterrupt),
        )
        if error is not None:
            return replace(done, failure=self._failure(error))
        return self._with_values(done, command, value)

    def _install(self, command: Run) -> None:
        """Bind the names sent along; all values first, so that a bad one changes nothing."""
        rank = self.info.rank
        if command.path:
            sys.path[:] = dict.fromkeys((*command.path, *sys.path))
            importlib.invalidate_caches()
        for source in command.sources:
            self._shell.learn(source)
        mine = [item for item in command.names if item.ranks is None or rank in item.ranks]
        values: dict[str, Any] = {}
        for item in mine:
            try:
                values[item.name] = unpack(item.value, self._store)
            except Exception as error:
                error.add_note(f"while the name {item.name!r} arrived on rank {rank}")
                raise
        self._shell.user_ns.update(values)

    def _with_values(self, done: RankDone, command: Run, value: object) -> RankDone:
        """Add what goes home."""
        if done.rank not in command.value_from:
            return done
        troubles: list[Unsendable] = []
        pulled: dict[str, Packed] = {}
        missing: list[str] = []
        packed = self._pack("the run's value", value, troubles) if command.wants_value else None
        for name in command.pull:
            found = home().get(name, _MISSING)
            if found is _MISSING:
                missing.append(name)
            elif (each := self._pack(name, found, troubles)) is not None:
                pulled[name] = each
        return replace(
            done,
            value=packed,
            pulled=pulled,
            missing=tuple(missing),
            unsendable=tuple(troubles),
        )

    def _pack(self, name: str, value: object, troubles: list[Unsendable]) -> Packed | None:
        try:
            return pack(name, value).stow(self._store)
        except PayloadError as error:
            troubles.append(Unsendable(name, error.path, error.type_name, error.reason))
        except OSError as error:
            troubles.append(Unsendable(name, name, type(value).__name__, str(error)))
        return None

    def _failure(self, error: BaseException) -> Failure:
        at = self._shell.place_of(error)
        message = _text_of(error)
        # What hangs on the exception (frames, its cause) stays here, in the text of `shown`.
        error.__traceback__ = error.__context__ = error.__cause__ = None
        packed = pack_exception(error, self._store)
        return Failure(
            type_name=type(error).__qualname__,
            message=message,
            value=packed,
            at=at,
            traceback=self._shell.shown,
        )


def _remember(
    name: str, namespace: dict[str, Any], sure: tuple[str, ...]
) -> Callable[[object], bool]:
    """Remember what a name is bound to, to tell later whether an object is that one.

    Held weakly where that is possible, so that a model the cell replaces can go. Else held
    itself, but for a container that the cell replaces for sure: there its id has to do.
    """
    value = namespace.get(name, _MISSING)
    try:
        reference = weakref.ref(value)
    except TypeError:
        if name in sure and isinstance(value, list | dict | set | tuple):
            number = id(value)
            return lambda now: id(now) == number
        return lambda now: now is value
    return lambda now: now is reference()


def _assigned(
    namespace: dict[str, Any], before: dict[str, Callable[[object], bool]], sure: tuple[str, ...]
) -> tuple[str, ...]:
    """Names whose values are new: surely bound, or another object than before; no modules."""
    return tuple(
        name
        for name, was in before.items()
        if (value := namespace.get(name, _MISSING)) is not _MISSING
        and (name in sure or not was(value))
        and not isinstance(value, ModuleType)
    )


def _text_of(error: BaseException) -> str:
    try:
        return encodable(str(error))
    except Exception:  # noqa: BLE001 - a user's broken __str__
        return "(its text cannot be shown)"


def _fresh_randomness() -> None:
    """Seed as a process of its own would be: forks share the forge's state otherwise."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _leave_with_the_last_words(uplink: Uplink) -> None:
    """Let `os._exit` send what was printed before it."""
    leave = os._exit

    def _exit(status: int) -> None:
        with contextlib.suppress(OSError):
            uplink.flush()
        leave(status)

    os._exit = _exit  # type: ignore[assignment]
