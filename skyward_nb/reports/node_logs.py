"""Logs of the machines of a pool: how they were prepared, and those of their agents; printed, saved."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyward_nb.logs.log_files import pools
from skyward_nb.logs.log_reader import MissingOutput, read_nodes
from skyward_nb.logs.node_log import AgentLog, agent_logs
from skyward_nb.pool.registry import entries
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.reports.run_logs import MOST_SHOWN, last_lines, save_lines, spell_ago
from skyward_nb.store.content_store import AgentGone
from skyward_nb.words.controls import spelt
from skyward_nb.words.errors import OptionError, spell_size
from skyward_nb.words.node_log_entry import NodeLogEntry, node_log_entries
from skyward_nb.words.ranks import parse_ranks

_NOTE = "note"


@dataclass(frozen=True)
class NodeLogs:
    """The words on some machines of a pool, and by host which nodes each is; `which` as asked for."""

    pool_id: str
    which: str
    hosts: Mapping[str, tuple[int, ...]]
    words: Sequence[NodeLogEntry]

    def heading(self, now: float) -> str:
        """Which pool it is, and which hosts are which nodes."""
        when = max((word.when for word in self.words if word.when), default=None)
        ago = f", {spell_ago(now - when)}" if when else ""
        return f"nodes of pool {self.pool_id}{ago}: {_spell_hosts(self.hosts)}"


def which_pool(asked: str | None) -> str:
    """The id of the pool of this name or id, or of the newest one, that is alive or has left words.

    Raises `OptionError`.
    """
    there = {entry.pool_id: entry.started for entry in entries()}
    there |= {kept.pool_id: kept.when for kept in pools()}
    newest = sorted(there, key=lambda each: -there[each])
    for pool_id in newest:
        if asked in (None, pool_id, pool_id.rpartition("-")[0]):
            return pool_id
    of = f"of machines of pool {asked!r}" if asked else "of machines of any pool"
    names = f"; there is {', '.join(newest[:5])}" if newest else ""
    raise OptionError("pool" if asked else "node", f"no log is kept {of}{names}")


def logs_elsewhere(pool_id: str) -> list[AgentLog]:
    """The ends of the logs of a pool's agents, also of another client's pool; none if it is not alive."""
    entry = next((each for each in entries() if each.pool_id == pool_id), None)
    if entry is None:
        return []
    try:
        machines = PROVIDERS[entry.spec.provider]().find(entry.spec, pool_id)
    except AgentGone:
        return []
    try:
        return agent_logs(machines)
    finally:
        for machine in machines:
            machine.leave()


def node_logs(pool_id: str, which: str, fetch: Callable[[], Sequence[AgentLog]]) -> NodeLogs:
    """The logs of the machines that `which` names, with the latest lines of their agents.

    Machines are written as nodes (`all`, `head`, `0,2-3`, `::2`), as hosts, or both; raises
    `OptionError` for those that are none of this pool.
    """
    words = [_as_word(word) for word in read_nodes(pool_id)]
    logs = fetch()
    nodes: dict[str, set[int]] = {}
    for each in (*words, *logs):
        if each.host:
            nodes.setdefault(each.host, set()).update(each.nodes)
    hosts = {host: tuple(sorted(found)) for host, found in nodes.items()}
    chosen = {*_chosen(which, pool_id, hosts)} if hosts else set[str]()
    for log in logs:
        words += node_log_entries(log.host, "agent.log", log.text, None, log.nodes)
    shown = [word for word in words if word.host in chosen or not word.host]
    return NodeLogs(pool_id, which, {host: hosts[host] for host in hosts if host in chosen}, shown)


def print_nodes(logs: NodeLogs, count: int | None, most: int | None = MOST_SHOWN) -> None:
    """Print these words, or the last `count` of them."""
    shown, left_out = last_lines(logs.words, count, most)
    if left_out and count is None:
        print(
            f"… {left_out:,} lines before these are not printed into the notebook: "
            f"%sky logs node={logs.which} pool={logs.pool_id} save=FILE writes all"
        )
    sys.stdout.writelines(f"{_spell(word)}\n" for word in shown)
    if not logs.words:
        print(
            f"no log is kept of node={logs.which} of pool {logs.pool_id}: provider=local prepares no "
            "machines, and an agent's log ends with its pool"
        )


def save_nodes(logs: NodeLogs, path: Path) -> str:
    """Write these words to a new file; how much that was, in words. Raises `OptionError`."""
    count, size = save_lines(map(_spell, logs.words), path)
    return f"{count:,} lines, {spell_size(size)}, on {_spell_hosts(logs.hosts)} are in {path}"


def _as_word(word: NodeLogEntry | MissingOutput) -> NodeLogEntry:
    return (
        NodeLogEntry(host="", part=_NOTE, text=word.text)
        if isinstance(word, MissingOutput)
        else word
    )


def _chosen(which: str, pool_id: str, hosts: Mapping[str, tuple[int, ...]]) -> Iterable[str]:
    world = 1 + max((node for nodes in hosts.values() for node in nodes), default=-1)
    for part in ["all"] if which == "all" else which.split(","):
        name = part.strip()
        if name in hosts:
            yield name
        elif name == "all":
            yield from hosts
        else:
            try:
                numbers = {*parse_ranks("node", name, world)}
            except OptionError:
                raise OptionError(
                    "node",
                    f"node={which}: pool {pool_id} has {_spell_hosts(hosts)}; write all, head, nodes "
                    "as in 0,2-3, a slice as in ::2, or hosts by these names",
                ) from None
            yield from (host for host, nodes in hosts.items() if numbers.intersection(nodes))


def _spell_hosts(hosts: Mapping[str, tuple[int, ...]]) -> str:
    """`gpu1 (node 0), gpu2 (node 1), gpu3`."""
    words = [
        f"{host} (node{'s' * (len(nodes) != 1)} {', '.join(map(str, nodes))})" if nodes else host
        for host, nodes in hosts.items()
    ]
    return ", ".join(words) or "no machines"


def _spell(word: NodeLogEntry) -> str:
    if not word.host:
        return f"… {spelt(word.text)} …"
    clock = time.strftime(" %H:%M:%S", time.localtime(word.when)) if word.when else ""
    return spelt(f"[{word.host}]{clock} {word.part}: {word.text}".rstrip())
