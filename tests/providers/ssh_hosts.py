"""Hosts of pools, which are this machine by way of an sshd on loopback; and runs beside a test."""

from __future__ import annotations

import contextlib
import threading

from free_ports import free_port
from leaks import places
from pools import request
from sshds import sshd
from waiting import until

from skyward_nb.protocol.events import Output, Phase
from skyward_nb.reports.node_logs import node_logs

RANK = "import os, time\nrank = int(os.environ['RANK'])\n"


@contextlib.contextmanager
def host(folder):
    """An sshd; one session at a time must do, and what lies there is looked for after each test."""
    environ = {**places(), "SKYWARD_CACHE_DIR": str(folder / "cache")}
    with sshd(folder / "sshd", environ, MaxSessions=1) as started:
        yield started


def names_of(server):
    """Whatever a host is called it is this one, but for `dead` ones, at which nothing listens."""
    server.say(
        "Host dead*", "HostName 127.0.0.1", f"Port {free_port()}",
        "Host *", f"HostName {server.address}", f"Port {server.port}",
    )  # fmt: skip


def run_beside(pool, body):
    """Run in a thread; what it said, and its outcome when it is over."""
    events, outcomes = [], []
    pool.look(lambda _: None)

    def run():
        outcomes.append(pool.run(request(pool, body), events.append))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, events, outcomes


def wait_for_text(events, word):
    until(lambda: any(isinstance(each, Output) and word in each.text for each in [*events]))


def wait_for_phase(events, word):
    until(lambda: any(isinstance(each, Phase) and word in each.text for each in [*events]))


def printed(events, rank):
    """Words that a rank printed."""
    return "".join(e.text for e in events if isinstance(e, Output) and e.rank == rank).split()


def names(pool):
    return [machine.name for machine in pool.context.generations.machines]


def kept_of(pool_id, which="all"):
    return node_logs(pool_id, which, list).words


def parts(words):
    return list(dict.fromkeys(word.part for word in words))
