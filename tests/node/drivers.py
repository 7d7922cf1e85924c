"""A client of one agent by hand: it says one command at a time, and hears what comes back."""

from __future__ import annotations

import ast
import asyncio
import linecache
import marshal
import os
import secrets
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from waiting import until

from skyward_nb.hangs.stacks import threads
from skyward_nb.plugins.collectives import waits_in
from skyward_nb.plugins.plugin_table import find_plugin
from skyward_nb.pool.link import Link
from skyward_nb.protocol.commands import (
    CutCommunication,
    Fork,
    Inspect,
    Interrupt,
    PluginUse,
    Reform,
    Reserve,
    Run,
    SourceFile,
    Stop,
)
from skyward_nb.protocol.events import (
    CommunicationCut,
    Output,
    RankDone,
    RankLost,
    RankReady,
    RankRefused,
    Reserved,
    Stack,
)
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.local import LocalProvider
from skyward_nb.words.info import place
from skyward_nb.words.spec import PoolSpec

PATIENCE = 60.0


class Driver:
    """An agent of its own, with as many ranks as asked for."""

    def __init__(self, machine, plugins: tuple[str, ...], link: Link) -> None:
        self.machine = machine
        self.link = link
        self.plugins = tuple(PluginUse(name) for name in plugins)
        self.events = []
        self.generation = self.runs = 0
        self.pids: dict[int, int] = {}
        self.places = ()

    def hear(self, seconds: float = PATIENCE):
        """The next events that are here or come; None when there are none in time."""
        until = time.monotonic() + seconds
        while select.select([self.link], [], [], max(0.0, until - time.monotonic()))[0]:
            # A long one comes in parts.
            if found := self.link.read():
                self.events += found
                return found
        return None

    def wait(self, kind, ranks, since=0, **fields):
        """One event of this kind from each of the ranks, with these fields; in the order of ranks."""
        until = time.monotonic() + PATIENCE
        while True:
            found = {
                event.rank: event
                for event in self.events[since:]
                if isinstance(event, kind)
                and all(getattr(event, name) == value for name, value in fields.items())
            }
            if set(ranks) <= set(found):
                return [found[rank] for rank in ranks]
            refused = [e for e in self.events[since:] if isinstance(e, RankRefused | RankLost)]
            assert not refused, refused
            if not self.hear(max(0.0, until - time.monotonic())):
                raise AssertionError((kind, fields, self._where(set(ranks) - set(found))))

    def _where(self, ranks):
        """The last events, and where these ranks are, which did not say what was waited for."""
        told = self.events[-5:]
        self.link.send(Inspect(tuple(sorted(ranks))))
        until = time.monotonic() + 5
        while time.monotonic() < until and self.hear(until - time.monotonic()):
            """Their stacks come, from native code, too."""
        kernels = [
            f"{rank}: {path.parent.name} {path.read_text()}"
            for rank in ranks
            for path in Path(f"/proc/{self.pids.get(rank)}/task").glob("*/wchan")
        ]
        return told, [each.text for each in self.events if isinstance(each, Stack)][-4:], kernels

    def _reserve(self):
        self.generation += 1
        since = len(self.events)
        servers = tuple(use.name for use in self.plugins if find_plugin(use.name).serves)
        self.link.send(Reserve(self.generation, tuple(range(self.world)), 1, servers))
        while not (told := [e for e in self.events[since:] if isinstance(e, Reserved)]):
            assert self.hear()
        spec = PoolSpec(nodes=self.world)
        self.places = place(spec, told[-1].peers, told[-1].port, "by-hand", self.generation)
        return since

    def fork(self, world: int) -> None:
        """Have ranks forked."""
        self.world = world
        self.ranks = tuple(range(world))
        since = self._reserve()
        self.link.send(Fork(self.generation, self.places, self.plugins))
        self._ready(since)

    def reform(self) -> float:
        """Have the ranks form a new group; how long it took."""
        started = time.monotonic()
        since = self._reserve()
        self.link.send(Reform(self.generation, self.places))
        self._ready(since)
        return time.monotonic() - started

    def _ready(self, since):
        ready = self.wait(RankReady, self.ranks, since, generation=self.generation)
        self.pids = {each.rank: each.pid for each in ready}

    def start(self, body: str) -> int:
        """Have all ranks run this; the run's number."""
        self.runs += 1
        name = f"<cell {self.runs}>"
        tree = ast.parse(body, name)
        code = marshal.dumps(compile(tree, name, "exec"))
        linecache.cache.pop(name, None)
        self.link.send(
            Run(
                run=self.runs,
                generation=self.generation,
                ranks=self.ranks,
                number=self.runs,
                body=code,
                sources=(SourceFile(name, self.runs, body),),
            )
        )
        return self.runs

    def ended(self, run: int, ranks=None):
        """How the run ended on each rank."""
        return self.wait(RankDone, self.ranks if ranks is None else ranks, run=run)

    def ran(self, body: str):
        """Run to the end."""
        return self.ended(self.start(body))

    def text(self, run: int, rank: int = 0) -> str:
        """What was printed."""
        here = [e for e in self.events if isinstance(e, Output) and (e.run, e.rank) == (run, rank)]
        return "".join(each.text for each in here)

    def said(self, run: int, word: str, ranks=None) -> None:
        """Wait until the ranks have printed this."""
        ranks = self.ranks if ranks is None else ranks
        while not all(word in self.text(run, rank) for rank in ranks):
            assert self.hear(), (word, self.events[-5:])

    def stuck(self, body: str, waits: Mapping[int, str | int] | None = None) -> int:
        """Run this until the ranks have said "here" and wait in what follows that; the run's number.

        With `waits`, until the ranks there wait in what it says, and the others have ended.
        """
        run = self.start(body)
        self.said(run, "here")
        if waits is not None:
            self.ended(run, [rank for rank in self.ranks if rank not in waits])
            self.waits(run, waits)
        time.sleep(0.2)  # from the word, or the function, to the wait
        return run

    def waits(self, run: int, waits: Mapping[int, str | int]) -> None:
        """Wait until these ranks are in this collective, or in native code that this line calls."""
        until(lambda: all(map(_is_in, self.stacks(waits), [run] * len(waits), waits.values())))

    def interrupt(self, run: int) -> None:
        self.link.send(Interrupt(run, self.ranks))

    def cut(self, run: int):
        """Cut all ranks off; what each said to that."""
        since = len(self.events)
        self.link.send(CutCommunication(run, self.ranks, also_idle=True))
        return self.wait(CommunicationCut, self.ranks, since, run=run)

    def stacks(self, ranks=None):
        """Where the ranks are."""
        ranks = self.ranks if ranks is None else ranks
        since = len(self.events)
        self.link.send(Inspect(tuple(ranks)))
        return [each.text for each in self.wait(Stack, ranks, since)]


def _is_in(text: str, run: int, where: str | int) -> bool:
    """Whether the main thread of this stack is in a collective of this name, or in this line."""
    frames = threads(text)[0].frames if text else ()
    if isinstance(where, str):
        return waits_in((spot.file, spot.function) for spot in frames) == where
    return bool(frames) and (frames[0].file, frames[0].line) == (f"<cell {run}>", where)


@contextmanager
def driver(world: int, *plugins: str) -> Iterator[Driver]:
    """An agent with ranks; ended, with its files, afterwards."""
    spec = PoolSpec(nodes=world)
    machine = asyncio.run(
        LocalProvider().acquire(spec, f"hand-{secrets.token_hex(3)}", lambda _: None)
    )[0]
    preload = [module for name in plugins for module in find_plugin(name).preload({})]
    made = None
    try:
        asyncio.run(machine.start_agent(60.0, 0.0, preload))
        client = Client(key="by hand", pid=os.getpid(), host="", since=0.0)
        link = Link(machine.name, client, PATIENCE)
        link.open(asyncio.run(machine.connect()))
        made = Driver(machine, plugins, link)
        made.fork(world)
        yield made
    finally:
        if made is not None:
            made.link.send(Stop())
        asyncio.run(machine.release())
        if made is not None:
            made.link.close()
