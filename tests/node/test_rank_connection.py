"""What a rank says and what is written to its pipes keep their order, whenever the agent looks."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import pytest
from leaks import leaves_nothing
from node import speaker

from skyward_nb.node.rank_connection import RankConnection
from skyward_nb.protocol.events import Output
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.words.info import InstanceInfo


class Ear:
    """Hears what one rank says."""

    def __init__(self, end="end\n"):
        self.end = end
        self.frames = event_frames()
        self.said: list[Output] = []
        self.ended = asyncio.Event()

    def heard(self, frames):
        self.said += self.frames.feed(frames)
        if self.end in self.text:
            self.ended.set()

    def hung_up(self, line):
        self.ended.set()

    @property
    def text(self):
        return "".join(each.text for each in self.said)


class Slow(RankConnection):
    """An agent whose machine gives it no time between what it has read and what it looks at next."""

    def get_buffer(self, sizehint):
        time.sleep(0.002)
        return super().get_buffer(sizehint)

    def buffer_updated(self, nbytes):
        time.sleep(0.01)
        super().buffer_updated(nbytes)


async def spoken(way, times) -> str:
    """What is heard of a process that speaks in this way so many times."""
    ear = Ear()
    line = Slow(asyncio.get_running_loop(), InstanceInfo(generation=1), ear)
    ends = await line.open()
    given = [end.fileno() for end in ends[:2]]
    words = [sys.executable, speaker.__file__, way, *map(str, (times, *given))]
    process = await asyncio.create_subprocess_exec(*words, pass_fds=given)
    try:
        async with asyncio.timeout(60):
            await ear.ended.wait()
    finally:
        await process.wait()
        line.close()
        for each in ends:
            each.close()
    return ear.text


@pytest.mark.parametrize("way, times", [("flushes", 40), ("writes_first", 40), ("says_much", 8)])
def test_what_is_said_and_what_is_written_keep_their_order(way, times):
    with leaves_nothing():
        lines = asyncio.run(spoken(way, times)).split("\n")
    told = [f"{letter} {i}" for i in range(times) for letter in "AB"]
    assert [line.rstrip() for line in lines] == [*told, "end", ""]


async def what_a_dead_rank_has_left(way, written) -> list[str]:
    ear = Ear("line 29")
    line = RankConnection(asyncio.get_running_loop(), InstanceInfo(generation=1), ear)
    rank, stdout, *others = await line.open()
    line.hold(True)  # the client is far behind
    os.write(stdout.fileno(), b"x" * written + b"\n")
    for number in range(30):
        rank.sendall(frame(Output(0, "stderr", f"line {number} {'y' * 1000}\n", 1)))
    for each in (rank, stdout, *others):
        each.close()
    line.let_end()
    if way == "hears the rest":
        line.hear_rest()
    else:
        line.send(b"\0" * 100)  # nobody is there to read it
        async with asyncio.timeout(60):
            await ear.ended.wait()
    line.close()
    return ear.text.split("\n")


@pytest.mark.parametrize(
    "way, written", [("hears the rest", 70_000), ("is told something", 30_000)]
)
def test_what_a_rank_said_before_it_died_is_heard_however_far_its_client_is_behind(way, written):
    with leaves_nothing():
        first, *lines = asyncio.run(what_a_dead_rank_has_left(way, written))
    assert len(first) == written
    assert [line.rstrip("y") for line in lines] == [*(f"line {n} " for n in range(30)), ""]


async def after_nonsense() -> list[str]:
    ear = Ear("what does not come")
    line = RankConnection(asyncio.get_running_loop(), InstanceInfo(generation=1), ear)
    rank, *others = await line.open()
    said = frame(Output(0, "stderr", "said\n", 1))
    rank.sendall(said + b"\xff" * 5)
    take_in = line.buffer_updated

    def taken_in(count: int) -> None:
        rank.sendall(said)  # before the line is closed
        take_in(count)

    line.buffer_updated = taken_in
    async with asyncio.timeout(30):
        await ear.ended.wait()
    line.close()
    for each in (rank, *others):
        each.close()
    return ear.text.split("\n")


def test_nothing_is_heard_of_what_follows_nonsense():
    """Where the next message begins cannot be known."""
    with leaves_nothing():
        assert asyncio.run(after_nonsense()) == [""]
