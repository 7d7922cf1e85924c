"""The memory of processes of this machine that is their own: without files and shared memory. Linux."""

from __future__ import annotations

import resource
from pathlib import Path

_PAGE = resource.getpagesize()


def own_memory(pid: int) -> int:
    """Bytes that a process holds; pages that it shares with its parent since the fork count whole.

    0 for a process that is gone. Source: proc_pid_statm(5).
    """
    words = _words(f"/proc/{pid}/statm")
    return (int(words[1]) - int(words[2])) * _PAGE if words else 0


def shared_out_memory(pid: int) -> int:
    """The same with each page divided by the number of its holders: takes a millisecond and more.

    0 where the kernel does not tell. Source: proc_pid_smaps(5), `Pss_Anon`.
    """
    words = _words(f"/proc/{pid}/smaps_rollup")
    return int(words[words.index("Pss_Anon:") + 1]) * 1024 if "Pss_Anon:" in words else 0


def reserved_data() -> int:
    """Bytes of this process that RLIMIT_DATA counts, touched or not: heap, private memory, stacks.

    Source: proc_pid_statm(5); its `data` also has the main thread's stack, of some 100 kB.
    """
    words = _words("/proc/self/statm")
    return int(words[5]) * _PAGE if words else 0


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except OSError:
        return []
