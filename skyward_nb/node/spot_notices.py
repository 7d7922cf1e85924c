"""Whether the machine is about to be taken back: EC2 is asked, Slurm and Kubernetes send a signal.

EC2 is asked by its metadata, while the agent lives; a signal comes some seconds before the end. Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from skyward_nb.protocol.commands import POD_ENDS, TIME_LIMIT, MachineReclaimed
from skyward_nb.words.decoding import from_json

VARIABLE = "SKYWARD_NOTICES"
_HOST = "169.254.169.254"
_PORT = 80
_OK = 200
_NONE = 404
_EVERY = 2.0
_LIMIT = 2.0
"""Seconds between looks, and those that a look may take, with a token if it needs one."""
_TOKEN = "PUT /latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600"
_ACTION = "GET /latest/meta-data/spot/instance-action"
_MOST = 1 << 16
_BEGAN = time.monotonic()


class _Action(msgspec.Struct, frozen=True):
    action: str
    time: str


async def watch_notices(told: Callable[[MachineReclaimed], None]) -> None:
    """Ask again and again; tells once, and returns then."""
    token = ""
    while True:
        # An answer may be an error's page, or nothing at all.
        with contextlib.suppress(
            OSError, TimeoutError, ValueError, IndexError, msgspec.MsgspecError
        ):
            async with asyncio.timeout(_LIMIT):
                if not token:
                    code, text = await _asked(*_TOKEN)
                    token = text if code == _OK else ""
                if token:
                    code, text = await _asked(_ACTION, f"X-aws-ec2-metadata-token: {token}")
                    if code == _OK:
                        found = from_json(text, _Action)
                        told(MachineReclaimed(found.action, found.time))
                        return
                    if code != _NONE:
                        token = ""
        await asyncio.sleep(_EVERY)


async def _asked(line: str, header: str) -> tuple[int, str]:
    """(status, body) of one question."""
    reader, writer = await asyncio.open_connection(_HOST, _PORT)
    try:
        writer.write(f"{line} HTTP/1.0\r\nHost: {_HOST}\r\n{header}\r\n\r\n".encode())
        data = (await reader.read(_MOST)).decode()
        while more := await reader.read(_MOST):
            data += more.decode()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    head, _, body = data.partition("\r\n\r\n")
    return int(head.split()[1]), body


def are_wanted() -> bool:
    """Whether EC2 may reclaim this machine; the client sets this variable for spot machines."""
    return os.environ.get(VARIABLE) == "1"


def comes_after() -> float | None:
    """Seconds from the agent's start after which there is a notice in any case; None where a signal alone brings one."""
    _, after = _by_signal()
    return float(after) if after.isdecimal() else None


def signalled() -> MachineReclaimed:
    """The notice that a signal is, by `SKYWARD_NOTICES=signal:SECONDS[:pod|:AFTER]`: the machine's time is over soon.

    With `AFTER`, the end is known: so many seconds, and `SECONDS`, after the agent's start.
    """
    seconds, kind = _by_signal()
    left = float(seconds) if seconds.isdecimal() else 0.0
    if (after := comes_after()) is not None:
        left = max(0.0, after + left - (time.monotonic() - _BEGAN))
    end = datetime.now(UTC) + timedelta(seconds=left)
    return MachineReclaimed(
        POD_ENDS if kind == "pod" else TIME_LIMIT, end.strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def _by_signal() -> tuple[str, str]:
    _, _, rest = os.environ.get(VARIABLE, "").partition(":")
    seconds, _, kind = rest.partition(":")
    return seconds, kind
