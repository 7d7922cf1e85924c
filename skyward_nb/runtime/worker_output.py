"""What workers of an elastic agent print, each line in one piece.

Python of a worker is unbuffered, as torchrun starts it: `print("loss", 3)` is four writes, and workers that share
a pipe tear one another's lines. So each has a pipe of its own, and a thread passes on whole lines.
"""

from __future__ import annotations

import os
import selectors
import threading
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

from skyward_nb.system.second_look import SecondLook

_SOON = 0.1
"""Seconds after which a line without an end is passed on, as of a progress bar."""
_READ = 1 << 16
_NOBODY = -1


class WorkerOutput:
    """The pipes of workers, of all attempts, in a folder; `close` passes on what is left in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._adding = threading.Lock()
        self._selector = SecondLook()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._parts: dict[int, bytes] = {}
        self._to: dict[int, int] = {}
        self._unended: dict[int, int] = {}
        """By descriptor, the pipe whose line was passed on there without its end."""
        self._thread = threading.Thread(target=self._pass_on, name="torchrun-output", daemon=True)
        self._thread.start()

    def pipe(self, to: int) -> str:
        """A new pipe whose lines go to a descriptor; its path, at which the worker writes."""
        with self._adding:
            path = self._folder / str(self._count)
            self._count += 1
            os.mkfifo(path)
            source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            self._parts[source], self._to[source] = b"", to
            self._selector.register(source, selectors.EVENT_READ)
        os.write(self._wake_write, b"+")
        return str(path)

    def close(self) -> None:
        """Pass on what is there, and end."""
        os.close(self._wake_write)
        self._thread.join()
        for source in [*self._parts]:
            while self._read(source):
                pass
            self._flush(source, whole=False)
            self._drop(source)
        self._selector.close()
        os.close(self._wake_read)

    def _pass_on(self) -> None:
        while True:
            ready = self._selector.select(_SOON if any(self._parts.values()) else None)
            for key, _ in ready:
                if key.fd == self._wake_read:
                    if not os.read(self._wake_read, _READ):
                        return
                elif not self._read(key.fd):
                    self._flush(key.fd, whole=False)
                    self._drop(key.fd)
            if not ready:
                for source in [*self._parts]:
                    self._flush(source, whole=False)

    def _read(self, source: int) -> bool:
        """Take what has come; False where there is nothing, and nobody to write."""
        try:
            data = os.read(source, _READ)
        except BlockingIOError:
            return False
        self._parts[source] += data
        self._flush(source, whole=True)
        return bool(data)

    def _flush(self, source: int, *, whole: bool) -> None:
        held = self._parts[source]
        end = held.rfind(b"\n") + 1 if whole else len(held)
        ready, self._parts[source] = held[:end], held[end:]
        if not ready:
            return
        to = self._to[source]
        if self._unended.pop(to, source) != source and not ready.startswith((b"\r", b"\n")):
            ready = b"\n" + ready  # of a worker that was ended in the middle of a line
        if not ready.endswith(b"\n"):
            self._unended[to] = source
        while ready:
            ready = ready[os.write(to, ready) :]

    def _drop(self, source: int) -> None:
        self._selector.unregister(source)
        if self._unended.get(self._to[source]) == source:
            self._unended[self._to[source]] = _NOBODY  # another pipe gets this number
        del self._parts[source], self._to[source]
        os.close(source)


class LineLogs(DefaultLogsSpecs):
    """PyTorch's logs of workers, but that what goes to the console goes there by lines."""

    def __init__(self, read: Any, output: WorkerOutput) -> None:
        chosen = {int(rank) for rank in read.local_ranks_filter.split(",") if rank}
        super().__init__(
            log_dir=read.log_dir,
            redirects=Std.from_str(read.redirects),
            tee=Std.from_str(read.tee),
            local_ranks_filter=chosen or None,
        )
        self._output = output

    def reify(self, envs: dict[int, dict[str, str]]) -> Any:
        """Where each worker of an attempt writes."""
        found: Any = super().reify(envs)
        for paths, descriptor in ((found.stdouts, 1), (found.stderrs, 2)):
            for local_rank, path in paths.items():
                if not path:
                    paths[local_rank] = self._output.pipe(descriptor)
        return found
