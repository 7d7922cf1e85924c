"""The process that makes a pool, as records on disk name it: whether it may live still."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from pathlib import Path

import msgspec
import psutil

from skyward_nb.system import processes

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MACHINE = Path("/etc/machine-id")
_CONTAINER = Path("/.dockerenv"), Path("/run/.containerenv")
_ID = 32


class MakerProcess(msgspec.Struct, frozen=True):
    """The process that makes a pool; `since` is its start, if possible by a clock that nobody sets."""

    pid: int
    since: float
    host: str
    boot: str = ""
    machine: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @classmethod
    def this(cls) -> MakerProcess:
        """This process."""
        own = os.getpid()
        return cls(own, _started(own), socket.gethostname(), processes.boot(), machine_mark())

    @property
    def is_here(self) -> bool:
        """Whether it is or was a process of this computer, which may have had another name.

        The mark of the machine decides where both are known; that of a container may be its image's.
        """
        own, is_named = machine_mark(), self.host == socket.gethostname()
        if self.machine and own and not _is_container():
            return self.machine == own
        return is_named and self.machine in ("", own)

    @property
    def may_live(self) -> bool:
        """Whether it may live; True for processes of other computers."""
        if not self.is_here:
            return True
        if _BOOT.exists():
            own = processes.ProcessIdentity(self.pid, round(self.since))
            return self.boot == processes.boot() and processes.lives(own)
        with contextlib.suppress(psutil.Error):
            return abs(psutil.Process(self.pid).create_time() - self.since) < 1
        return False


def _started(pid: int) -> float:
    """The start of a process: since the boot if the system knows that, else since 1970."""
    known = processes.known(pid)
    return psutil.Process(pid).create_time() if known is None else float(known.started)


def _is_container() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(each.exists() for each in _CONTAINER)


def machine_mark() -> str:
    """A mark of this computer, which a copy of its disk does not keep; "" if the system has none.

    It is a hash of the machine id, which is confidential. Source: machine-id(5).
    """
    with contextlib.suppress(OSError):
        said = _MACHINE.read_bytes().strip()
        if len(said) == _ID:  # before the first boot it is another word, or nothing
            return hashlib.blake2b(said, digest_size=6, person=b"skyward_nb").hexdigest()
    return ""
