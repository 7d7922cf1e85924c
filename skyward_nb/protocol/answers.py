"""Events that answer one command: parts of the union `Event`."""

from __future__ import annotations

import msgspec

from skyward_nb.protocol.message_parts import Client
from skyward_nb.words.checkpoints import CheckpointPart


class CommunicationCut(msgspec.Struct, frozen=True, tag=True):
    """A rank's answer to `CutCommunication`: the collective its main thread waits in, and whether it was cut."""

    run: int
    rank: int
    waited_in: str = ""
    cut: bool = False


class RunInterrupted(msgspec.Struct, frozen=True, tag=True):
    """Ranks of a run were interrupted; in the journal for clients that attach later."""

    run: int
    by_person: bool = False
    ranks: tuple[int, ...] = ()


class NotKilled(msgspec.Struct, frozen=True, tag=True):
    """The agent did not kill these ranks, since they had ended the run; it passed on their `RankDone` before."""

    run: int
    ranks: tuple[int, ...]


class StateKept(msgspec.Struct, frozen=True, tag=True):
    """A rank's answer to `KeepState`: in words, what of its models can be had in that generation, or "".

    None: another rank is to be asked, as this one is gone, or was stopped within an optimizer's step.
    """

    generation: int
    rank: int
    words: str | None = None


class NamesKept(msgspec.Struct, frozen=True, tag=True):
    """A rank's answer to `KeepNames`: its part of the checkpoint, or `why` there is none, in words."""

    key: str
    rank: int
    part: CheckpointPart | None = None
    why: str = ""


class AttachRefused(msgspec.Struct, frozen=True, tag=True):
    """An agent's answer to `Attach` while another client is attached, or was since this one's line broke."""

    client: Client


class Pong(msgspec.Struct, frozen=True, tag=True):
    """An agent's answer to `Ping`."""


class Stack(msgspec.Struct, frozen=True, tag=True):
    """The stacks of a rank's threads, in the format of `faulthandler`; empty if it did not answer."""

    rank: int
    text: str
