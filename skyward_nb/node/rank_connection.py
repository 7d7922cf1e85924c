"""The agent's connection to one rank: its socket, its two output pipes, and the state of its process."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
import select
import socket
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

from skyward_nb.node.stack_pipe import StackPipe
from skyward_nb.node.unread_bytes import HERE, unread_bytes
from skyward_nb.plugins.noise_filter import NoiseFilter
from skyward_nb.protocol.commands import Inspect
from skyward_nb.protocol.events import Output
from skyward_nb.protocol.frames import Cutter, FrameError, frame
from skyward_nb.words.info import InstanceInfo

if TYPE_CHECKING:
    from skyward_nb.node.local_ranks import LocalRanks

_CHUNK = 1 << 16
_PIPE_SIZE = 1 << 18
_PAUSE = 0.02
_PIPES = ("stdout", "stderr")
_BUFFER = memoryview(bytearray(1 << 18))


class RankConnection(asyncio.BufferedProtocol):
    """Reads a rank's events and pipes; what C code and children wrote comes before a later event."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, place: InstanceInfo, ranks: LocalRanks
    ) -> None:
        self.rank: int = place.rank
        self.place = place
        self.run: int = 0
        self.gpu: str | None = None
        """Its GPU, as CUDA_VISIBLE_DEVICES names it."""
        self.pid: int | None = None
        self.unborn_signal: int | None = None
        self.asked_to_end = False
        self.how: str | None = None
        self._loop = loop
        self._ranks = ranks
        self._cutter = Cutter()
        self._transport: asyncio.Transport | None = None
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in _PIPES}
        self._chatter = {name: NoiseFilter() for name in _PIPES}
        self._pipes: dict[str, int] = {}
        self._ready = select.poll()
        self._timers: set[asyncio.TimerHandle] = set()
        self._control: socket.socket | None = None
        self._stacks = StackPipe(loop)
        self._held = False
        self._is_to_end = False
        self.closed: bool = False
        self.silent: bool = False

    @property
    def generation(self) -> int:
        """The generation that the rank belongs to."""
        return self.place.generation

    @property
    def living_pid(self) -> int | None:
        """The process id of a rank that has been forked, and is not known to have ended."""
        return self.pid if self.how is None else None

    async def open(self) -> list[IO[bytes] | socket.socket]:
        """Connect; the descriptors for the rank's process, in `ForkRank`'s order."""
        ours, theirs = socket.socketpair()
        ends: list[IO[bytes] | socket.socket] = [theirs]
        for name in _PIPES:
            read, write = os.pipe()
            os.set_blocking(read, False)
            # More may be written between two reads, where the system allows it: pipe(7).
            with contextlib.suppress(AttributeError, OSError):
                fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
            self._pipes[name] = read
            self._ready.register(read, select.POLLIN)
            self._loop.add_reader(read, self._on_pipe, name)
            ends.append(os.fdopen(write, "wb", 0))
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        ends += [control, os.fdopen(self._stacks.open(), "wb", 0)]
        ours.setblocking(False)
        await self._loop.create_connection(lambda: self, sock=ours)
        return ends

    def begin(self, run: int) -> None:
        """Attribute what is written from now on to this run."""
        self._is_to_end = False
        found = self._drain()
        for each in self._chatter.values():
            each.ends = ""  # last words that a child has written
        for name, decoder in self._decoders.items():
            # A character begun in one run does not end in another.
            if rest := decoder.decode(b"", final=True):
                found += frame(Output(self.rank, name, rest, self.run))
        self._ranks.heard(found)
        self.run = run

    def send(self, data: bytes) -> None:
        """Pass a frame on to the rank."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def control(self, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Send a frame, and descriptors, to the rank's control thread, which obeys even if the main one is stuck."""
        if self._control is not None:
            # Of one that does not even take this much, nothing can be hoped.
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [data], descriptors)

    def inspect(self, signal: Callable[[], None], answer: Callable[[str], None]) -> None:
        """Answer with the stacks of its threads; `signal` has the main one write its own."""
        self._stacks.ask(lambda: self.control(frame(Inspect((self.rank,)))), signal, answer)

    def last_words(self) -> str:
        """The last words of a dead rank's native code; "" if there are none."""
        self._ranks.heard(self._drain())
        return next((each.ends for each in self._chatter.values() if each.ends), "")

    def hear_rest(self) -> None:
        """Hear all that a rank which has ended has left unread; the loop reads a part of it at a time."""
        if self.closed or self.silent or self._transport is None:
            return
        with contextlib.suppress(OSError, FrameError):
            while count := os.readv(self._socket.fileno(), [self.get_buffer(0)]):
                self.buffer_updated(count)
        self._ranks.heard(self._drain())

    def crash(self) -> str:
        """The stacks that `faulthandler` wrote at a crash; "" without one."""
        return self._stacks.crash()

    def let_end(self) -> None:
        """Hold the rank back no more in this run: it is to end, and its end must be heard in time."""
        self.hold(False)
        self._is_to_end = True

    def hold(self, held: bool) -> None:
        """Stop reading, so that the rank waits with what it says, unless it is to end; or go on."""
        held = held and not self._is_to_end
        if held == self._held or self.closed or self._transport is None:
            return
        self._held = held
        if held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        for name, pipe in self._pipes.items():
            if held:
                self._loop.remove_reader(pipe)
            else:
                self._loop.add_reader(pipe, self._on_pipe, name)

    def close(self) -> None:
        """Close everything; safe to call twice."""
        if self.closed:
            return
        self.closed = True
        for timer in self._timers:
            timer.cancel()
        for pipe in self._pipes.values():
            self._ready.unregister(pipe)
            self._loop.remove_reader(pipe)
            os.close(pipe)
        self._pipes.clear()
        self._stacks.close()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._transport is not None:
            self._transport.abort()

    # ── asyncio.Protocol ────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._socket = transport.get_extra_info("socket")

    def get_buffer(self, sizehint: int) -> memoryview:
        """A buffer for the rank's events until now; earlier output in its pipes is read first.

        The pipes are read between counting those bytes and reading them. Output before them is in the
        pipes by then; a rank that has flushed waits until they are read, so later output is not. All
        connections share one buffer: its content is copied at once.
        """
        said = unread_bytes(self._socket.fileno(), HERE)
        if written := self._drain():
            self._ranks.heard(written)
        return _BUFFER if said is None else _BUFFER[: max(said, 1)]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what the rank said."""
        self._ranks.heard(self._cutter.feed(bytes(_BUFFER[:nbytes])))

    def connection_lost(self, exc: Exception | None) -> None:
        """The rank hung up: hear the rest of its pipes, then say so."""
        if not self.closed:
            # It may have hung up where nothing was read, as its client is behind; what follows nonsense is none.
            if not isinstance(exc, FrameError):
                self.hear_rest()
            self.silent = True
            self._ranks.hung_up(self)

    # ── the pipes ───────────────────────────────────────────────────────────────────────

    def _on_pipe(self, name: str) -> None:
        """Empty the pipe, then pause: many small writes become few events."""
        for _ in range(_PIPE_SIZE // _CHUNK):
            text, more = self._read(name)
            self._ranks.heard(text)
            if not more:
                break
        if name in self._pipes:
            self._loop.remove_reader(self._pipes[name])
            self._later(_PAUSE, lambda: self._listen_again(name))

    def _listen_again(self, name: str) -> None:
        if name in self._pipes and not self._held:
            self._loop.add_reader(self._pipes[name], self._on_pipe, name)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            call()

        timer = self._loop.call_later(seconds, run)
        self._timers.add(timer)

    def _drain(self) -> bytes:
        # Looked at first: a read of nothing is an exception, and there is seldom anything.
        if not self._ready.poll(0):
            return b""
        found = b""
        for name in _PIPES:
            more = name in self._pipes
            while more:
                text, more = self._read(name)
                found += text
        return found

    def _read(self, name: str) -> tuple[bytes, bool]:
        """One read as a frame of output, and whether there may be more right now."""
        pipe = self._pipes[name]
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return b"", False
        if not data:
            self._loop.remove_reader(pipe)
            self._ready.unregister(pipe)
            os.close(self._pipes.pop(name))
            return b"", False
        more = len(data) == _CHUNK
        text = self._decoders[name].decode(self._chatter[name].left_out_of(data))
        return frame(Output(self.rank, name, text, self.run)) if text else b"", more
