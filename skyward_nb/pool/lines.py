"""The lines to all machines of a pool, and their repair.

A cut line is opened again and continues where it was. A silent machine is asked; without an answer for
three heartbeats its line counts as cut. The pool ends only if an agent has surely ended, or cannot be
reached for as long as it lives without a client.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any, NoReturn, TypeVar

from skyward_nb.pool.client_names import spell_client
from skyward_nb.pool.event_selector import EventSelector
from skyward_nb.pool.link import CutLine, Link, LinkLost, all_or_none, opened_or_ended
from skyward_nb.pool.state import Incoming, SigInt
from skyward_nb.pool.state_lock import StateLock
from skyward_nb.protocol.commands import Command
from skyward_nb.protocol.events import AttachRefused, Event, Hello, Leaving, Phase, Pong, RunBegan
from skyward_nb.protocol.message_parts import Client
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.providers.provider_protocol import (
    AgentGone,
    KnowsItsEnd,
    Machine,
    MachineEnded,
    MachinesEnded,
)

T = TypeVar("T")
Watch = Callable[[Event | None], None]
_OF_THE_LINE = (Leaving, AttachRefused, Pong)
_TICK = 0.1
_RETRY = 0.25
_MISSED = 3
_LEAVING = 1.0
_AT_ONCE = 0.05
"""Seconds within which a cut line is usually open again."""


class Lines:
    """Links to machines; `heartbeat` and `patience` in seconds. One thread at a time listens: see `StateLock`.

    Any thread may send. `lock` is held while sending and listening, but not while waiting.
    """

    def __init__(
        self,
        client: Client,
        heartbeat: float,
        patience: float,
        lock: StateLock,
        *,
        frames_html: bool = False,
    ) -> None:
        self._lock = lock
        self._frames_html = frames_html
        self.links: list[Link] = []
        self._client = client
        self._heartbeat = heartbeat
        self._patience = patience
        self.on_gone: Callable[[str], NoReturn] = _unheard
        """Called with the reason when the pool is lost; raises."""
        self.on_left: Callable[[str], NoReturn] = _unheard
        """Called with the reason when the person interrupts while a machine cannot be reached; raises."""
        self.on_refused: Callable[[str], NoReturn] = _unheard
        """Called with another client of the pool, in words; raises."""
        self.on_ended: Callable[[Link, MachineEnded], Iterable[Event]] | None = None
        """Called when a machine has ended; the events that follow. None if that ends the pool."""
        self.board: EventSelector = EventSelector()
        self._early: deque[Incoming] = deque()
        self._looked = float("-inf")
        self._machines: dict[Link, Machine] = {}
        self.before_cut: Callable[[int], None] = lambda _: None
        """Called with a descriptor that is about to be closed."""
        self._cut: dict[Link, CutLine] = {}

    # ── life ────────────────────────────────────────────────────────────────────────────

    def open_all(
        self, machines: Iterable[Machine], slots: int, watch: Watch, *, may_lack: bool = False
    ) -> dict[Link, MachineEnded]:
        """Open a line to each of these machines, whose nodes have `slots` ranks; raises errors of connections.

        If the pool `may_lack` some, and one lives, the machines that have ended are returned; else
        `MachinesEnded` is raised.
        """
        self.links += [self._link(machine, slots) for machine in machines]
        connects = [opened_or_ended(self._machines[link]) for link in self.links]
        opened = self.wait_for(all_or_none(connects), watch)
        there: dict[Link, socket.socket] = {}
        ended: dict[Link, MachineEnded] = {}
        for link, found in zip(self.links, opened, strict=True):
            if isinstance(found, MachineEnded):
                ended[link] = found
            else:
                there[link] = found
        if ended and not (may_lack and there):
            for connection in there.values():
                connection.close()
            raise MachinesEnded(
                {link.machine: str(each) for link, each in ended.items()}, len(there)
            )
        for link in ended:
            self._end(link)
        for link, connection in there.items():
            self._open(link, connection)
        return ended

    def exchange(self, link: Link, machine: Machine, slots: int, connection: socket.socket) -> Link:
        """Replace a line by one to another machine."""
        at = self.links.index(link)
        self._end(link)
        del self._machines[link]
        self.links[at] = new = self._link(machine, slots)
        self._open(new, connection)
        return new

    def _link(self, machine: Machine, slots: int) -> Link:
        ranks = frozenset(node * slots + slot for node in machine.nodes for slot in range(slots))
        link = Link(machine.name, self._client, _MISSED * self._heartbeat, ranks)
        link.frames_html = self._frames_html
        link.may_be_replaced = self.on_ended is not None
        link.asks_why = isinstance(machine, KnowsItsEnd)
        self._machines[link] = machine
        return link

    def _end(self, link: Link) -> None:
        """Close a line for good."""
        with self._lock:
            if link.is_open:
                self.before_cut(link.fileno())
            self.board.remove(link)
            link.close()
            link.is_over = True
            if (cut := self._cut.pop(link, None)) is not None:
                cut.give_up()

    def interrupts(self, *, anew: bool = True) -> contextlib.AbstractContextManager[None]:
        """While inside, SIGINT is an event; `anew`: earlier interrupts are dropped."""
        return self.board.interrupts(anew=anew)

    def forget_interrupts(self) -> None:
        """Drop those that came so far."""
        self.board.forget_interrupts()
        for each in [each for each in tuple(self._early) if isinstance(each, SigInt)]:
            with contextlib.suppress(ValueError, IndexError):  # another thread takes it
                self._early.remove(each)

    @property
    def is_cut(self) -> bool:
        """Whether a machine cannot be reached, as far as is known."""
        return bool(self._cut)

    def sockets(self) -> list[int]:
        """The descriptors to watch for events."""
        return [link.fileno() for link in self.links if link.is_open]

    def leave(self) -> None:
        """Close all lines, once agents have read what was sent to them, or `_LEAVING` seconds are over."""
        self.flush()
        for link in self.links:
            link.say_no_more()
        until = time.monotonic() + _LEAVING
        for link in self.links:
            link.await_end(until)
        self.close()

    def close(self) -> None:
        """Close all lines."""
        for cut in self._cut.values():
            cut.give_up()
        for link in self.links:
            link.close()
        self.board.close()

    # ── out ─────────────────────────────────────────────────────────────────────────────

    def send(self, command: Command) -> None:
        """Send a command to all machines that it concerns."""
        with self._lock:
            for link in self.links:
                if link.concerns(command):
                    self.tell(link, command)

    def tell(self, link: Link, command: Command) -> None:
        """Send a command to one machine; if its line is cut, when it is open again."""
        with self._lock:
            try:
                link.send(command)
            except LinkLost as lost:
                self._lost(lost)

    def flush(self) -> None:
        """Send the waiting commands."""
        with self._lock:
            for link in self.links:
                try:
                    link.flush()
                except LinkLost as lost:
                    self._lost(lost)

    def deliver(self, limit: float) -> None:
        """Try for `limit` seconds to open cut lines again, so that commands arrive; raises as `pump`."""
        until = time.monotonic() + limit
        while self._cut.keys() & {each for each in self.links if not each.is_greeted}:
            if time.monotonic() > until:
                return
            self.keep_up(lambda _: None)
            self.next(_TICK)

    def arrived(self) -> None:
        """Note that all commands so far have arrived."""
        for link in self.links:
            link.arrived()

    # ── in ──────────────────────────────────────────────────────────────────────────────

    def pump(
        self, watch: Watch, until: float | None, *, interrupts: bool = False
    ) -> Iterator[Incoming | None]:
        """Yield events, and None for ticks, until `until` (monotonic seconds).

        All but interrupts go to `watch` first. An interrupt is yielded with `interrupts`, else raised.
        """
        self.begin_listening()
        while until is None or time.monotonic() < until:
            event = self.step(watch)
            if not isinstance(event, SigInt):
                watch(event)
            elif not interrupts:
                raise KeyboardInterrupt
            yield event

    def begin_listening(self) -> None:
        """Begin to listen: the time before does not count as silence of machines."""
        now = time.monotonic()
        for link in self.links:
            link.heard = min(now, link.heard + (now - self._looked))

    def step(self, watch: Watch, due: float | None = None) -> Incoming | None:
        """The next event, or None for a tick, at `due` (monotonic seconds) at the latest.

        `watch` gets a `Phase` for lines that are cut, or open again.
        """
        if not self._early:
            self.keep_up(watch)
        wait = _TICK if due is None else min(_TICK, max(0, due - time.monotonic()))
        event = self.next(wait)
        if self._cut and isinstance(event, SigInt):
            self.on_left("; ".join(cut.why for cut in self._cut.values()))
        if isinstance(event, Hello):
            self.keep_up(watch)
        return event

    def next(self, timeout: float) -> Incoming | None:
        """The next event within `timeout` seconds, or None; further events are kept for the next call."""
        if not self._early:
            self._looked = time.monotonic()
            ready = self.board.ready(timeout)
            with self._lock:
                found = self._read(ready)
                self._early += [each for each in found if type(each) is not RunBegan]
        event = self._early.popleft() if self._early else None
        if not isinstance(event, _OF_THE_LINE):
            return event
        if isinstance(event, Leaving):
            self.on_gone(f"its agent left: {event.why}")
        elif isinstance(event, AttachRefused):
            self.on_refused(spell_client(event.client))
        return None

    def _read(self, ready: list[object]) -> list[Incoming]:
        try:
            return self.board.read(ready)
        except LinkLost as lost:
            self._lost(lost)
            return []

    def heard_until(self) -> float | None:
        """The time (monotonic seconds) until which all events were given; None if some are kept."""
        return None if self._early else self._looked

    def put_back(self, events: Sequence[Incoming]) -> None:
        """Keep these events for the next calls, before all others."""
        self._early.extendleft(reversed(events))

    def wait_for(self, work: Coroutine[Any, Any, T], watch: Watch, name: str = "") -> T:
        """The result of a coroutine, which `name` says for people; cut lines are mended. Raises as `pump`."""
        going = LOOP.start(work, name)
        future = going.future
        future.add_done_callback(lambda _: self.board.nudge())
        self.begin_listening()
        try:
            while not future.done():
                ready = self.board.ready(_TICK)
                with self._lock:
                    found = self._read(ready)
                    self._early += [each for each in found if not isinstance(each, SigInt)]
                if any(isinstance(each, SigInt) for each in found):
                    raise KeyboardInterrupt
                self.keep_up(watch)
                watch(None)
        except BaseException:
            going.give_up()
            raise
        return future.result()

    def keep_up(self, watch: Watch) -> None:
        """Ask silent machines; try to open cut lines again."""
        now = time.monotonic()
        for link in self.links:
            if link.is_open:
                with self._lock:
                    self._ask_if_silent(link, now, watch)
            elif link in self._cut:
                self._mend(link, now, watch)

    def _ask_if_silent(self, link: Link, now: float, watch: Watch) -> None:
        silent = now - link.heard
        if silent > _MISSED * self._heartbeat:
            self._lost(LinkLost(link, f"{link.machine} has not answered for {silent:.0f} s"))
        elif silent > self._heartbeat and not link.is_asked:
            try:
                link.ask()
            except LinkLost as lost:
                self._lost(lost)
        elif link in self._cut and link.is_greeted:
            del self._cut[link]
            if not self._cut:
                watch(Phase(""))

    # ── lines that are cut ──────────────────────────────────────────────────────────────

    def _open(self, link: Link, connection: socket.socket) -> None:
        """Use a connection; one that has ended meanwhile is a line that is cut."""
        with self._lock:
            link.heard, link.is_asked = time.monotonic(), False
            try:
                link.open(connection)
            except LinkLost as lost:
                self._lost(lost)
            else:
                self.board.add(link)

    def _lost(self, lost: LinkLost) -> None:
        """Close a line that is cut, and note since when."""
        link = lost.link
        with self._lock:
            self._early.extend(lost.found)
            if link.is_open:
                self._early.extend(link.last_words())
                self.before_cut(link.fileno())
            self.board.remove(link)
            link.close()
        now = time.monotonic()
        known = self._cut.get(link)
        self._cut[link] = cut = CutLine(str(lost), known.since if known else now, now)
        cut.opening = known.opening if known else None

    def _mend(self, link: Link, now: float, watch: Watch) -> None:
        """Open a cut line again, if that is possible now; ends the pool if it never will be."""
        cut = self._cut[link]
        if now < cut.due:
            return
        if now - cut.since > self._patience and not cut.is_answered:
            self.on_gone(f"{cut.why}, and could not be reached for {now - cut.since:.0f} s")
        watch(Phase(f"{cut.why}; trying to reach it again for {now - cut.since:.0f} s"))
        if cut.opening is None:
            # In the background: it may take long, and other machines have events.
            cut.opening = LOOP.start(self._machines[link].connect())
            cut.opening.future.add_done_callback(lambda _: self.board.nudge())
            wait([cut.opening.future], _AT_ONCE)
        if not cut.is_answered:
            return
        opening, cut.opening = cut.opening, None
        try:
            self._open(link, opening.future.result())
        except AgentGone as gone:
            if not isinstance(gone, MachineEnded) or self.on_ended is None:
                why = str(gone) or link.left
                self.on_gone(f"the agent on {link.machine} is gone{f': {why}' * bool(why)}")
            came_of_it = self.on_ended(link, gone)
            self._end(link)
            self._early.extend(came_of_it)
            watch(Phase(""))
        except OSError as error:
            cut.due = time.monotonic() + _RETRY
            cut.why = f"{link.machine} cannot be reached: {error.strerror or error}"


def _unheard(why: str) -> NoReturn:
    raise AssertionError(why)
