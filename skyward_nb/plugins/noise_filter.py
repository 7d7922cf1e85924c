"""Lines of frameworks' native code in a rank's output that carry no news. Pure.

A `NoiseFilter` follows one stream of one rank. What it leaves out may tell how the rank ends.
"""

from __future__ import annotations

import re

_MARKS = b"[Gloo] Rank ", b" peer ranks", b"coordination", b"hostname of the client", b"should dump"
_GREETINGS = re.compile(
    rb"^(?=.*(?:Gloo|peer ranks))(?:\[Gloo\] Rank |\d| is connected to | peer ranks\. "
    rb"|Expected number of connected peer ranks is : )+(?:\n|\Z)",
    re.MULTILINE,
)
"""What gloo writes to standard output for every group of devices JAX computes on.

Its threads write at the same time, so that a line may be made of parts of several, or end too soon.
"""
_POLLED = re.compile(
    rb"^E\d{4} \S+ +\d+ coordination_service_agent\.cc:\d+\] Polled an error .*\n", re.MULTILINE
)
"""What JAX says before it says the same once more, with the cause."""
_PREEMPTION = re.compile(
    rb"^[WE]\d{4} \S+ +\d+ preemption_sync_manager\.cc:\d+\] .*\n"
    rb"(?:Additional GRPC error information from remote target coordination_service.*\n:.*\n)?",
    re.MULTILINE,
)
"""It cannot learn of preemption any more: the coordinator is gone, which another line says."""
_NO_HOSTNAME = re.compile(
    rb"^\[W\d{4} \S+ socket\.cpp:\d+\] \[c10d\] The hostname of the client socket cannot .*\n",
    re.MULTILINE,
)
"""What torch's store says of each rank where no server of names answers; it goes on with the address."""
_CUT_STORE = re.compile(
    rb"^\[rank\d+\]:\[W\d+ \S+ ProcessGroupNCCL\.cpp:\d+\] .*\"should dump\" flag.*: Too many levels of symbolic links\n"
    rb"(?:Exception raised from .*\n)?(?:frame #\d+: .*\n)*\n?",
    re.MULTILINE,
)
"""What a thread of NCCL says when the store it looks at was cut; a new one looks at a new store."""
_FAREWELL = re.compile(
    rb"^F\d{4} .*Terminating process because the JAX distributed service detected fatal errors"
    rb".*Failed to send RPC to coordination service",
    re.MULTILINE,
)
"""How a process of JAX begins its last words that has lost the coordinator; addresses follow."""
LOST_ITS_COORDINATOR = "ended by JAX, which lost its coordinator, rank 0"


class NoiseFilter:
    """One stream; `ends` is how the rank ends, in words, once its last words say that."""

    def __init__(self) -> None:
        self.ends: str = ""

    def left_out_of(self, data: bytes) -> bytes:
        """What is news of the next bytes of the stream."""
        if self.ends:
            return b""
        if not any(mark in data for mark in _MARKS):
            return data
        for pattern in (_GREETINGS, _POLLED, _PREEMPTION, _NO_HOSTNAME, _CUT_STORE):
            data = pattern.sub(b"", data)
        if (farewell := _FAREWELL.search(data)) is not None:
            self.ends = LOST_ITS_COORDINATOR
            data = data[: farewell.start()]
        return data
