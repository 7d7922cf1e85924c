"""One stream to a host, and from it, three ways: OpenSSH's client, asyncssh's own streams, and ours.

`compared` runs them one after the other, several times over, so that a busy machine is busy for all.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import asyncssh
from cluster.town import Town

from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.providers.ssh.ssh_line import HostLine
from skyward_nb.store.value_messages import ANSWERS
from skyward_nb.store.value_stream import ValueStream
from skyward_nb.words.hosts import SSHAccess, parse_hosts

CIPHER = "aes128-gcm@openssh.com"
WINDOW, PACKET = 32 << 20, 64 << 10
OPENSSH, ORDINARY, PROCESS, OURS = "openssh", "asyncssh", "asyncssh, a process", "skyward_nb"
_REST = 1.0
PATH = "/run/stream.sock"
SINK = f"""
import os, socket, subprocess, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind({PATH!r})
os.chmod({PATH!r}, 0o777)
listener.listen()
def serve(peer):
    with peer:
        head = peer.recv(9, socket.MSG_WAITALL)
        size = str(int.from_bytes(head[1:], "big"))
        if head[:1] == b"u":
            subprocess.run(["head", "-c", size], stdin=peer, stdout=subprocess.DEVNULL)
        else:
            subprocess.run(["head", "-c", size, "/dev/zero"], stdout=peer)
        peer.send(b"k")
        peer.recv(1)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""
"""Takes or gives as many bytes as it is asked to."""


@dataclass(frozen=True)
class Cost:
    """Of moving so many bytes: seconds, and seconds of CPU on this side."""

    wall: float
    cpu: float


@contextmanager
def sink(town: Town) -> Iterator[None]:
    """Something at `PATH` on the first host."""
    words = town[0].box.entering("python3", "-c", SINK)
    with subprocess.Popen(words) as process:
        try:
            while not town[0].file(PATH).exists():
                time.sleep(0.05)
            yield
        finally:
            process.kill()


def _cost(work: Callable[[], object], who: int) -> Cost:
    time.sleep(_REST)  # whoever else uses the machine goes on

    def spent() -> float:
        used = resource.getrusage(who)
        return used.ru_utime + used.ru_stime

    cpu, began = spent(), time.perf_counter()
    work()
    return Cost(time.perf_counter() - began, spent() - cpu)


def openssh(town: Town, size: int, *, up: bool) -> Cost:
    """`ssh host 'cat > /dev/null'`, or `ssh host head`, without the time of its login."""
    words = ["ssh", "-F", str(town.config), "-c", CIPHER, town.names[0]]

    def run(command: str, amount: int) -> None:
        given = f"head -c {amount * up} /dev/zero"
        whole = subprocess.Popen(["sh", "-c", given], stdout=subprocess.PIPE)
        subprocess.run([*words, command], stdin=whole.stdout, stdout=subprocess.DEVNULL, check=True)
        assert whole.stdout is not None
        whole.stdout.close()
        whole.wait()

    def moved(amount: int) -> Cost:
        command = "cat > /dev/null" if up else f"head -c {amount} /dev/zero"
        return _cost(lambda: run(command, amount), resource.RUSAGE_CHILDREN)

    login, whole = moved(0), moved(size)
    return Cost(whole.wall - login.wall, whole.cpu - login.cpu)


class _Ordinary(asyncssh.SSHUNIXSession[bytes], asyncssh.SSHClientSession[bytes]):
    """A session of asyncssh without its readers and writers, which cost more."""

    def __init__(self) -> None:
        self._came = 0
        self._wanted = 0
        self._has_come = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._channel: Any = None

    def connection_made(self, chan: Any) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._came += len(data)
        if self._came >= self._wanted:
            self._has_come.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    async def move(self, data: bytes, *, up: bool) -> None:
        size = len(data)
        self._wanted = 1 if up else size + 1
        self._channel.write((b"u" if up else b"d") + size.to_bytes(8, "big"))
        view = memoryview(data)
        for start in range(0, size * up, 32 << 10):
            self._channel.write(bytes(view[start : start + (32 << 10)]))
            await self._may_write.wait()
        await self._has_come.wait()
        self._channel.close()


class Lines:
    """A connection of asyncssh, and a line as pools have it, on a loop of their own."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        access = SSHAccess(hosts=parse_hosts(town.names[:1]), config=str(town.config))
        self._line = HostLine(access.hosts[0], Dialer(access))
        self._connection = self._do(self._connected())
        self._do(self._line.connect())

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connected(self) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            self._town.names[0],
            config=[str(self._town.config)],
            encryption_algs=[CIPHER],
            compression_algs=None,
        )

    def ordinary(self, data: bytes, *, up: bool) -> Cost:
        """A stream to a socket, by asyncssh's public names."""

        async def move() -> None:
            _, session = await self._connection.create_unix_connection(
                _Ordinary, PATH, window=WINDOW, max_pktsize=PACKET
            )
            await session.move(data, up=up)

        return _cost(lambda: self._do(move()), resource.RUSAGE_SELF)

    def process(self, data: bytes, *, up: bool) -> Cost:
        """A process of asyncssh's, with its own reader and writer."""

        async def move() -> None:
            command = "cat > /dev/null" if up else f"head -c {len(data)} /dev/zero"
            process = await self._connection.create_process(
                command, encoding=None, window=WINDOW, max_pktsize=PACKET
            )
            view = memoryview(data)
            for start in range(0, len(data) * up, 32 << 10):
                process.stdin.write(bytes(view[start : start + (32 << 10)]))
                await process.stdin.drain()
            process.stdin.write_eof()
            while await process.stdout.read(1 << 20):
                pass
            await process.wait_closed()

        return _cost(lambda: self._do(move()), resource.RUSAGE_SELF)

    def ours(self, data: bytes, *, up: bool) -> Cost:
        """A channel for values."""

        def move() -> None:
            stream = ValueStream(self._do(self._line.way(PATH)), ANSWERS)
            stream._send(memoryview((b"u" if up else b"d") + len(data).to_bytes(8, "big")))
            if up:
                stream._send(memoryview(data))
            else:
                room = memoryview(bytearray(1 << 20))
                stream.pour(0, len(data), room, lambda at, piece: None)
            stream.take(memoryview(bytearray(1)))
            stream.close()

        return _cost(move, resource.RUSAGE_SELF)

    def close(self) -> None:
        self._do(self._line.close())
        self._connection.abort()
        self._do(self._connection.wait_closed())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def compared(town: Town, data: bytes, rounds: int = 3) -> dict[tuple[str, bool], Cost]:
    """By who and whether up: the medians of so many rounds."""
    found: dict[tuple[str, bool], list[Cost]] = {}
    with sink(town):
        lines = Lines(town)
        ways = {
            OPENSSH: lambda up: openssh(town, len(data), up=up),
            ORDINARY: lambda up: lines.ordinary(data, up=up),
            PROCESS: lambda up: lines.process(data, up=up),
            OURS: lambda up: lines.ours(data, up=up),
        }
        try:
            for _ in range(rounds):
                for up in (True, False):
                    for who, move in ways.items():
                        found.setdefault((who, up), []).append(move(up))
        finally:
            lines.close()
    return {
        each: Cost(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))
        for each, costs in found.items()
    }
