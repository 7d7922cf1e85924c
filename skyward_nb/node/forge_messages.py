"""The messages between an agent and its forge: orders go to the forge, words come from it."""

from __future__ import annotations

import socket

import msgspec

from skyward_nb.protocol.commands import PluginUse
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.masking import masked_repr

LARGEST = 1 << 20
"""Bytes of a message at most."""


class ForkRank(msgspec.Struct, frozen=True, tag=True):
    """Fork a rank; its sockets, its pipes and perhaps its rendezvous socket come along.

    It runs on these `cpus` (none: on all), and its code holds at most so many bytes of `memory`. All ranks
    of its world are on this machine if they are `together`.
    """

    place: InstanceInfo
    env: dict[str, str]
    plugins: tuple[PluginUse, ...]
    threads: int
    memory: int | None = None
    cpus: tuple[int, ...] = ()
    together: bool = False

    def __repr__(self) -> str:
        return masked_repr(self)


class SignalRank(msgspec.Struct, frozen=True, tag=True):
    """Send a signal to a rank, or with `group` to all it started, too."""

    pid: int
    number: int
    group: bool = False


class PreloadModules(msgspec.Struct, frozen=True, tag=True):
    """Import these modules, as before the first fork; `NAME=VALUE` sets a variable. Answered by `ModulesPreloaded`."""

    modules: tuple[str, ...]


class RankForked(msgspec.Struct, frozen=True, tag=True):
    """A rank's process id, and when it started: nobody is later taken for it."""

    generation: int
    rank: int
    pid: int
    started: int = 0


class RankExited(msgspec.Struct, frozen=True, tag=True):
    """A rank's process ended: its exit code, or minus the signal that killed it."""

    pid: int
    code: int


class ModulesPreloaded(msgspec.Struct, frozen=True, tag=True):
    """Preloading is over after `seconds`; `missing` says what could not be imported."""

    seconds: float
    missing: dict[str, str] = {}


Order = ForkRank | SignalRank | PreloadModules
Word = RankForked | RankExited | ModulesPreloaded


def send(connection: socket.socket, message: Order | Word, descriptors: list[int]) -> None:
    """One message with its file descriptors on a SOCK_SEQPACKET socket."""
    socket.send_fds(connection, [msgspec.msgpack.encode(message)], descriptors)
