"""A network of the browser's own: Chromium lets go of what it loads when an interface comes or goes.

There is nothing on it but loopback, so that nothing from elsewhere can be loaded, either.
"""

from __future__ import annotations

import ctypes
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.box import Box, why_no_boxes

_NETWORK = 0x40000000
"""CLONE_NEWNET, the kind of namespace that is entered."""


class Apart:
    """Where server and browser meet: a network apart, or without `box` that of this machine."""

    def __init__(self, box: Box | None) -> None:
        self._box = box
        if box is not None:
            box.links("link set lo up")

    def words(self, *words: str) -> list[str]:
        """The command line that runs these words there."""
        return self._box.entering(*words, only="n") if self._box else list(words)

    def command(self, program: str, path: Path) -> str:
        """What runs this program there: a script in `path` that takes what the program takes."""
        path.write_text(f'#!/bin/sh\nexec {shlex.join(self.words(program))} "$@"\n')
        path.chmod(0o700)
        return str(path)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What this thread opens in the block, it opens there."""
        if self._box is None:
            yield
            return
        with (
            open("/proc/thread-self/ns/net") as here,
            open(f"/proc/{self._box.pid}/ns/net") as there,
        ):
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    def close(self) -> None:
        if self._box is not None:
            self._box.close()


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def network_apart(name: str) -> Iterator[Apart]:
    """A network apart, by this name, to the end of the block; that of this machine for who may make no namespaces."""
    # Who may not runs no tests that do, which are what changes the network.
    made = Apart(None if why_no_boxes() else Box(name))
    try:
        yield made
    finally:
        made.close()
