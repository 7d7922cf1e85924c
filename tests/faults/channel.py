"""A bad channel between a pool and its agent: it delays, cuts into pieces, breaks off at any byte."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field

from skyward_nb.pool import registry
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.local import LocalProvider
from skyward_nb.words.spec import PoolSpec

UP, DOWN = "up", "down"
"""To the pool's agent, and from it."""


@dataclass
class Rule:
    """What is wrong with the channel.

    `delay` is the longest wait before a piece, in seconds; `pieces` the largest piece, in bytes
    (0: as it comes). After `breaks_at[way]` bytes from now on a line breaks off, once, or again
    after as many bytes of the next line with `again`; the end is a reset, or else orderly.
    While it is `silent` nothing gets through, and no end either, as when a cable is pulled.
    """

    delay: float = 0.0
    pieces: int = 0
    breaks_at: dict[str, int] = field(default_factory=dict)
    again: bool = False
    resets: bool = False
    silent: bool = False
    seed: int = 0


class Channel:
    """Carries the bytes of all lines of one pool, under one rule at a time."""

    def __init__(self) -> None:
        self.lines = 0
        self.broken = 0
        self._rule = Rule()
        self._dice = random.Random(0)
        self._passed = {UP: bytearray(), DOWN: bytearray()}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def obey(self, rule: Rule) -> None:
        """Begin to count and to record anew, under this rule."""
        with self._lock:
            self._rule = rule
            self._dice = random.Random(rule.seed)
            self._passed = {UP: bytearray(), DOWN: bytearray()}
            self.broken = 0

    def passed(self, way: str) -> bytes:
        """What has gone this way since the rule began; with `again`, on the last line."""
        with self._lock:
            return bytes(self._passed[way])

    def carry(self, agent: socket.socket) -> socket.socket:
        """A line to the agent through this channel."""
        ours, theirs = socket.socketpair()
        agent.setblocking(True)
        thread = threading.Thread(target=self._pump, args=(theirs, agent), daemon=True)
        self._threads.append(thread)
        self.lines += 1
        thread.start()
        return ours

    def close(self) -> None:
        """Wait until nothing is carried any more."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _pump(self, client: socket.socket, agent: socket.socket) -> None:
        ways = {client: (UP, agent), agent: (DOWN, client)}
        with client, agent, selectors.DefaultSelector() as selector:
            for end in ways:
                selector.register(end, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                while all(
                    self._pass_on(key.fileobj, *ways[key.fileobj]) for key, _ in selector.select()
                ):
                    pass
            self._hang_up(client, agent)

    def _pass_on(self, source: socket.socket, way: str, to: socket.socket) -> bool:
        """Pass on what there is; whether the line is to go on."""
        with self._lock:
            rule, dice = self._rule, self._dice
        if rule.silent:
            time.sleep(0.01)
            return True
        most = dice.randint(1, rule.pieces) if rule.pieces else 1 << 18
        # Looked at first: what is not passed on stays there, and makes of the end a reset.
        data = source.recv(most, socket.MSG_PEEK)
        if not data:
            return False
        if rule.delay:
            time.sleep(dice.uniform(0, rule.delay))
        with self._lock:
            if rule is not self._rule:
                return True
            limit = rule.breaks_at.get(way)
            room = len(data) if limit is None else max(0, limit - len(self._passed[way]))
            data = data[:room]
            self._passed[way] += data
            breaks = limit is not None and len(self._passed[way]) >= limit
            if breaks:
                self.broken += 1
                if rule.again:
                    self._passed[way] = bytearray()
                else:
                    rule.breaks_at.pop(way)
        if data:
            source.recv(len(data))
            to.sendall(data)
        return not breaks

    def _hang_up(self, client: socket.socket, agent: socket.socket) -> None:
        """End the line: a socket that closes with bytes unread resets it, one that is shut does not."""
        if not self._rule.resets:
            for end in (client, agent):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


class _Machine:
    """A machine that is reached through a channel only."""

    def __init__(self, machine, channel: Channel) -> None:
        self._machine = machine
        self._channel = channel

    def __getattr__(self, name: str):
        return getattr(self._machine, name)

    async def connect(self) -> socket.socket:
        """Connect through the channel."""
        return self._channel.carry(await self._machine.connect())


class ThroughChannel(LocalProvider):
    """This machine, its agents reached through a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def acquire(self, spec: PoolSpec, pool_id: str, tell):
        """This machine."""
        return tuple(
            _Machine(each, self._channel) for each in await super().acquire(spec, pool_id, tell)
        )

    def find(self, spec: PoolSpec, pool_id: str):
        """This machine, where the pool's agent is."""
        return tuple(_Machine(each, self._channel) for each in super().find(spec, pool_id))


def pool_through(channel: Channel, **options: object) -> Pool:
    """A pool of two ranks unless it is said otherwise, reached through a channel."""
    spec = PoolSpec(**{"nodes": 2, "grace": 1.0, **options})
    pool = Pool(spec, ThroughChannel(channel), lambda _: None)
    pool.start(lambda _: None)
    return pool


def found_through(channel: Channel, pool: Pool) -> Pool:
    """Another client's view of a pool, reached through a channel."""
    (entry,) = [each for each in registry.entries() if each.pool_id == pool.pool_id]
    return Pool(entry.spec, ThroughChannel(channel), lambda _: None, pool_id=pool.pool_id)
