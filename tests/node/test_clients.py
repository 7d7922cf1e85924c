"""How long an agent waits for a client, by a clock that the test sets forward."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace

from skyward_nb.node.client_connection import ClientConnection
from skyward_nb.node.clients import Clients
from skyward_nb.node.journal import Journal
from skyward_nb.node.outbox import Outbox
from skyward_nb.node.run_record import RunRecord
from skyward_nb.protocol.commands import Attach
from skyward_nb.protocol.events import Leaving, Output
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.protocol.message_parts import Client


async def passes(seconds):
    """Have this process be held up for so long, by the clock of its loop, and go on."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_client_that_is_held_up_finds_the_agent_that_it_has_started(tmp_path):
    """Of a pool with a short `idle`, on a machine that is busy."""
    left = []
    clients = Clients(SimpleNamespace(line=None), None, None, 0.5, None, left.append)

    async def scene():
        async with await clients.listen(str(tmp_path / "s")):
            await passes(5)
            assert not left
            for _ in range(20):
                await passes(60)

    asyncio.run(scene())
    assert left == ["no client for 20 s"]


def test_a_client_that_came_in_time_is_heard_by_an_agent_that_was_held_up(tmp_path):
    left = []
    journal = Journal(tmp_path / "events")
    runs = RunRecord(journal)
    ranks = SimpleNamespace(
        environment=("", {}), generation=0, table=SimpleNamespace(places=(), pids={}), notice=None
    )
    clients = Clients(Outbox(journal, runs), ranks, runs, 0.5, None, left.append)

    async def scene():
        path = str(tmp_path / "s")
        async with await clients.listen(path):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.sendall(frame(Attach(Client(key="k", pid=1, host="h", since=0.0))))
                for _ in range(20):
                    await passes(60)

    asyncio.run(scene())
    journal.close()
    assert left == []


def test_ranks_that_were_held_go_on_though_the_client_takes_all_at_once(tmp_path):
    """Its buffers may be so large that it never is too slow."""
    held = []

    async def scene():
        journal = Journal(tmp_path / "events")
        outbox = Outbox(journal, RunRecord(journal))
        outbox.hold_ranks = held.append
        clients = SimpleNamespace(caught_up=outbox.caught_up, hung_up_on=lambda line: None)
        line = ClientConnection(clients)
        line.connection_made(Endless())
        outbox.follow(line, 0)
        for _ in range(30):
            outbox.tell(Output(0, "stdout", "x" * 100_000, 1))
        assert held == [True]
        await asyncio.sleep(0)
        journal.close()

    asyncio.run(scene())
    assert held == [True, False]


class Endless(asyncio.Transport):
    """A transport that takes everything."""

    def is_closing(self):
        return False

    def write(self, data):
        """It is gone."""


class Reader(asyncio.Protocol):
    """A client, which may stop reading for a while."""

    def __init__(self):
        self.events, self.frames, self.ended = [], event_frames(), asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.events += self.frames.feed(data)

    def connection_lost(self, error):
        self.ended.set()


def test_a_client_that_is_far_behind_hears_why_its_agent_ends(tmp_path):
    async def scene():
        journal = Journal(tmp_path / "events")
        outbox = Outbox(journal, RunRecord(journal))
        clients = SimpleNamespace(caught_up=lambda: None, hung_up_on=lambda line: None)
        line = ClientConnection(clients)
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        async with asyncio.timeout(60):
            await loop.create_connection(lambda: line, sock=here)
            _, client = await loop.create_connection(Reader, sock=there)
            client.transport.pause_reading()
            outbox.follow(line, 0)
            while not line.is_paused:
                outbox.tell(Output(0, "stdout", "x" * 100_000, 1))
                await asyncio.sleep(0)
            outbox.leave(Leaving("the machine ends", by_machine=True))
            client.transport.resume_reading()
            await line.finish()
            await client.ended.wait()
        journal.close()
        return client.events

    heard = asyncio.run(scene())
    assert Leaving("the machine ends", by_machine=True) in heard
    assert {type(each) for each in heard} == {Output, Leaving}
