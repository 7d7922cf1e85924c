"""What a rank says and what is written to its pipes keep their order, whenever the agent looks."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from leaks import leaves_nothing

from skyward_nb.node.rankline import RankLine
from skyward_nb.node.uplink import Uplink
from skyward_nb.wire.frames import event_frames
from skyward_nb.words.events import Output


class Ear:
    """Hears what one rank says."""

    def __init__(self):
        self.frames = event_frames()
        self.said: list[Output] = []
        self.ended = asyncio.Event()

    def heard(self, frames):
        self.said += self.frames.feed(frames)
        if self.text.endswith("end\n"):
            self.ended.set()

    def hung_up(self, line):
        pass

    @property
    def text(self):
        return "".join(each.text for each in self.said)


class Slow(RankLine):
    """An agent whose machine gives it no time between what it has read and what it looks at next."""

    def get_buffer(self, sizehint):
        time.sleep(0.002)
        return super().get_buffer(sizehint)

    def buffer_updated(self, nbytes):
        time.sleep(0.01)
        super().buffer_updated(nbytes)


async def spoken(code, times) -> str:
    """What is heard of a process that runs this so many times with a rank's uplink and pipe."""
    ear = Ear()
    line = Slow(asyncio.get_running_loop(), 0, 1, ear)
    ends = await line.open()
    child = os.fork()
    if not child:
        try:
            uplink = Uplink(ends[0], 0)
            for i in range(times):
                code(uplink, ends[1].fileno(), i)
            uplink.write("stdout", "end\n")
            uplink.flush()
        finally:
            os._exit(0)
    try:
        async with asyncio.timeout(30):
            await ear.ended.wait()
    finally:
        await asyncio.to_thread(os.waitpid, child, 0)
        line.close()
        for each in ends:
            each.close()
    return ear.text


def flushes(uplink, pipe, i):
    uplink.write("stdout", f"A {i}\n")
    uplink.settle()
    os.write(pipe, f"B {i}\n".encode())


def writes_first(uplink, pipe, i):
    os.write(pipe, f"A {i}\n".encode())
    uplink.write("stdout", f"B {i}\n")
    uplink.settle()


def says_much(uplink, pipe, i):
    """More than one read takes, so that a frame is heard in parts."""
    uplink.write("stdout", f"A {i}{' ' * 400_000}\n")
    uplink.settle()
    os.write(pipe, f"B {i}\n".encode())


@pytest.mark.parametrize("code, times", [(flushes, 40), (writes_first, 40), (says_much, 8)])
def test_what_is_said_and_what_is_written_keep_their_order(code, times):
    with leaves_nothing():
        lines = asyncio.run(spoken(code, times)).split("\n")
    told = [f"{letter} {i}" for i in range(times) for letter in "AB"]
    assert [line.rstrip() for line in lines] == [*told, "end", ""]
