"""Words on the machines of one pool, kept on disk beside the output of its ranks.

The logs of agents stay on their machines: only their ends are fetched. A file is made with the first
word. An error here never breaks a pool: it is remembered in `NodeLog.trouble`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from skyward_nb.logs.log_files import LIMITS, NODES, LogLimits, sweep
from skyward_nb.logs.logbook import RunLog, spell_fault
from skyward_nb.protocol.frames import frame
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.providers.provider_protocol import Machine
from skyward_nb.words.node_log_entry import NodeLogEntry, node_log_entries

_LIMITS = LogLimits(head=4_000_000, part=4_000_000, parts=3)
"""Of each pool, the first 4 MB are kept, and the last 8 MB or more."""

_LATE = 1.0
_MOST = 64_000
"""Bytes fetched of an agent's log."""


@dataclass(frozen=True)
class AgentLog:
    """The end of the log of the agent on a host with these nodes."""

    host: str
    nodes: tuple[int, ...]
    text: str


def agent_logs(machines: Sequence[Machine]) -> list[AgentLog]:
    """The ends of the logs of agents that can be reached now; not from the loop's thread."""
    going = [LOOP.start(each.agent_log(_MOST)) for each in machines]
    return [
        AgentLog(each.name, each.nodes, work.future.result())
        for each, work in zip(machines, going, strict=True)
    ]


class NodeLog:
    """Writes words on the machines of a pool; from any thread.

    `trouble` is why no more is kept, or empty; `hosts` are those with words in the log.
    """

    def __init__(self, pool_id: str) -> None:
        self.trouble: str = ""
        self.hosts: set[str] = set()
        self._log = RunLog(pool_id, NODES, _LIMITS, _make_room)
        self._lock = threading.Lock()

    def write(self, word: NodeLogEntry) -> None:
        """Keep a word; it is on disk soon, or after `close`."""
        with self._lock:
            if self.trouble:
                return
            self.hosts.add(word.host)
            self._log.add(frame(word), 1)
            if time.monotonic() - self._log.written > _LATE:
                self._flush()

    def say(self, host: str, nodes: tuple[int, ...], part: str, text: str) -> None:
        """Keep a text on a machine, line by line, with the present time."""
        for word in node_log_entries(host, part, text, time.time(), nodes):
            self.write(word)

    def close(self) -> None:
        """Write the buffered words; more may come."""
        with self._lock:
            self._flush()
            self._log.close()

    def _flush(self) -> None:
        try:
            self._log.flush()
        except (OSError, RuntimeError) as error:  # RuntimeError: below a home that nobody has
            self._log.close()
            self.trouble = spell_fault(error)


def _make_room() -> None:
    sweep(LIMITS.everything - _LIMITS.head, LIMITS.runs)
