"""Another Unix user of this machine, for tests of what such a user reaches. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

import pytest

UID = 54_321
"""Nobody's."""

needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: a process of another user is started"
)

CONNECTS = """
import socket, sys
host, port, word = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
try:
    with socket.create_connection((host, port), 1) as to:
        to.sendall(word)
        to.settimeout(10)
        print("answered" if to.recv(1) else "closed")
except TimeoutError:
    print("dropped")
except OSError:
    print("closed")
"""
"""Says what became of a connection on which a word was sent."""


_BECOMES = """
import os
os.setgroups([])
os.setresgid({uid}, {uid}, {uid})
os.setresuid({uid}, {uid}, {uid})
"""


@contextlib.contextmanager
def other_user_runs(code: str, *args: object, imports: str = "", uid: int = UID):
    """Run this code as another user meanwhile, for as long as the block.

    `imports` run before it is that user, as Python may be in a folder of root's.
    """
    becomes = _BECOMES.format(uid=uid) if uid != os.geteuid() else ""
    before = f"import encodings.idna, socket, sys\n{imports}\n{becomes}\nprint('begins')\n"
    with subprocess.Popen(
        [sys.executable, "-uc", before + code, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TF_CPP_MIN_LOG_LEVEL": "3"},
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def as_another_user(
    code: str, *args: object, imports: str = "", seconds: float = 120, uid: int = UID
) -> str:
    """What this code prints as another user, until its end or for so many seconds after the imports."""
    with other_user_runs(code, *args, imports=imports, uid=uid) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        assert first == "begins\n", first or f"ended with {running.wait()}"
        end = threading.Timer(seconds, running.kill)
        end.start()
        try:
            return running.stdout.read()
        finally:
            end.cancel()
