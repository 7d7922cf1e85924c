"""What an agent orders of its forge, and what it takes for its answer; the forge is played."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

from skyward_nb.node.forge_connection import ForgeConnection
from skyward_nb.node.forge_messages import ModulesPreloaded, RankForked, SignalRank, send


@asynccontextmanager
async def connected(folder):
    """A connection, and the forge's end of its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        forge = ForgeConnection(folder, (), os.getpid(), ours)
        forge.open(None, lambda: None)
        try:
            yield forge, theirs
        finally:
            if ours.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(ours)


async def what_is_missing(folder) -> list[object]:
    async with connected(folder) as (forge, theirs):
        forge.preload({"a"})  # as its command line says
        forge.preload({"a", "b"})
        send(theirs, ModulesPreloaded(0.1), [])
        async with asyncio.timeout(60):
            while forge._answers > 1:  # noqa: ASYNC110 - there is no event for that
                await asyncio.sleep(0.01)
        said = [forge.imported.is_set()]
        send(theirs, ModulesPreloaded(0.1, {"b": "ImportError: no"}), [])
        async with asyncio.timeout(60):
            await forge.imported.wait()
        said.append(dict(forge.missing))
        forge.preload({"c"})
        send(theirs, ModulesPreloaded(0.1), [])
        async with asyncio.timeout(60):
            await forge.imported.wait()
        return [*said, forge.missing]


def test_what_is_ordered_while_it_imports_is_waited_for_too(tmp_path):
    """As where a new environment and a framework come at once."""
    assert asyncio.run(what_is_missing(tmp_path)) == [False, {"b": "ImportError: no"}, {}]


async def sent_too_late(folder) -> list[bool]:
    async with connected(folder) as (forge, _):
        asyncio.get_running_loop().remove_reader(forge._socket)
        forge._socket.close()
        here, there = socket.socketpair()
        with there:
            for _ in range(2):
                forge.send(SignalRank(1, 2), here)
        return [here.fileno() < 0, bool(forge._orders)]


def test_an_order_to_a_forge_that_was_hung_up_on_goes_nowhere(tmp_path):
    """A client may interrupt a run as its agent ends."""
    assert asyncio.run(sent_too_late(tmp_path)) == [True, False]


def test_all_ranks_that_were_begun_are_known_before_any_of_them_is_heard(tmp_path):
    known = []

    async def scene():
        async with connected(tmp_path) as (forge, theirs):
            forge._ranks = SimpleNamespace(forked=lambda word: known.append(word.rank))
            for rank in range(3):
                send(theirs, RankForked(1, rank, os.getpid(), 0), [])
            forge._read()

    asyncio.run(scene())
    assert known == [0, 1, 2]


FORKS = """
import os, time
from types import SimpleNamespace
from skyward_nb.node.forge import Forge
forge = object.__new__(Forge)
forge._ranks = set()
def say(word):
    time.sleep(0.2)
    os.write(1, b"told ")
forge._say = say
forge._become = lambda birth, descriptors: os.write(1, b"begun ")
forge._fork(SimpleNamespace(place=SimpleNamespace(generation=1, rank=0)), [])
os.waitpid(-1, 0)
"""


def test_a_rank_begins_once_the_agent_is_told_of_it():
    ran = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert ran.stdout == "told begun "
