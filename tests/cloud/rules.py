"""What is to go wrong: which call, and how. A rule waits for its calls, and is over when it had them.

How is an error's code, or what becomes of whoever calls: `before` (killed before the call was sent),
`sent` (killed when it was carried out, before it was answered), `answered` (killed when it was
answered), `lost` (lives on, and gets no answer to a call that was carried out).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
from cloud.calls import Call

_LOOKS = 20
KILLS = ("before", "sent", "answered")


@dataclass
class Rule:
    """`action` "" is any; `skip` calls go well before, and `times` do not (0: all that follow)."""

    how: str
    action: str = ""
    words: str = ""
    region: str = ""
    zone: str = ""
    type: str = ""
    spot: bool | None = None
    skip: int = 0
    times: int = 1
    after: bool = False
    """The error comes although the call was carried out."""
    delay: float = 0.0
    """Seconds from the answer until whoever called is killed."""
    since: str = ""
    """It counts only after another rule has had a call of this action."""
    had: int = 0

    def takes(self, call: Call, zone: str) -> bool:
        """Whether this call is one of its own; counts it."""
        asked = {
            "action": call.action,
            "region": call.region,
            "zone": zone,
            "type": call.form.get("InstanceType", ""),
        }
        if any(getattr(self, key) not in ("", value) for key, value in asked.items()):
            return False
        is_spot = call.form.get("InstanceMarketOptions.MarketType") == "spot"
        if self.spot is not None and self.spot != is_spot:
            return False
        if self.times and self.had >= self.skip + self.times:
            return False
        self.had += 1
        return self.had > self.skip


class Rules:
    """The rules that there are; the first that takes a call has it."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, **what: object) -> None:
        self._rules.append(Rule(**what))

    def calm(self) -> int:
        """There are none any more; how many calls they have had."""
        had = sum(max(0, each.had - each.skip) for each in self._rules)
        self._rules.clear()
        return had

    def take(self, call: Call, zone: Callable[[], str]) -> Rule | None:
        begun = {each.action for each in self._rules if each.had > each.skip}
        counting = [each for each in self._rules if each.since in ("", *begun)]
        return next((each for each in counting if each.takes(call, zone())), None)


def caller(port: int, own: int) -> int:
    """The process at the other end of a connection from this port to our own, both of loopback."""
    ends = ("127.0.0.1", port), ("127.0.0.1", own)
    for _ in range(_LOOKS):
        for each in psutil.net_connections("tcp4"):
            if (tuple(each.laddr), tuple(each.raddr)) == ends and each.pid is not None:
                return each.pid
        # Processes that begin and end meanwhile may hide others from one look.
        time.sleep(0.01)
    raise ProcessLookupError(f"nobody has port {port}")


def kill(pid: int) -> None:
    """Kill whoever called, and wait until it is gone; never the test itself."""
    assert pid != os.getppid(), "the test itself called"
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 60
    # Whoever waits for it may bury it at any moment.
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until
            time.sleep(0.002)
