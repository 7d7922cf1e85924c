"""A pool on two hosts that one logs in to, with a real sshd on loopback: what it does while its lines are cut, and they are not."""

import contextlib
import hashlib
import re
import sys
import threading
from pathlib import Path

import psutil
import pytest
from leaks import leaves_nothing, ours
from pools import request, start, values
from providers.ssh_hosts import (
    RANK,
    host,
    names_of,
    printed,
    run_beside,
    wait_for_phase,
    wait_for_text,
)
from sshds import lacks
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.protocol.events import Phase
from skyward_nb.providers.folders import pool_folders
from skyward_nb.words.errors import PoolError
from skyward_nb.words.hosts import SSHAccess, parse_hosts
from skyward_nb.words.image import Image

np = pytest.importorskip("numpy")

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())


def count(may_end):
    """A cell that counts to 60, and waits at 29 until this file is there."""
    return f"""
import os, time
for i in range(60):
    print(f'<{{i}}>', flush=True)
    time.sleep(0.05)
    while i == 29 and not os.path.exists({str(may_end)!r}):
        time.sleep(0.05)
'end'
"""


class PoolOfModule:
    """A pool of two hosts that stays up, and the sshd of both: each test has new ranks."""

    def __init__(self, server):
        self.server = server
        self.pool = self._begin()

    def _begin(self):
        names_of(self.server)
        access = SSHAccess(hosts=parse_hosts(["one", "two"]), config=str(self.server.client_config))
        image = Image(interpreter=sys.executable)
        return start(provider="ssh", ssh=access, image=image, heartbeat=1.0)

    def renew(self):
        try:
            self.pool.restart(lambda _: None)
        except PoolError:
            self.pool.close()
            self.server.renew()
            self.pool = self._begin()

    def traces(self):
        """Its processes, and the sshd: a test may have others than there were before."""
        found = {f"child {self.server.pid}"}
        for each in ours():
            with contextlib.suppress(psutil.NoSuchProcess):
                if self.pool.pool_id in " ".join(psutil.Process(each).cmdline()):
                    found.add(f"process {each}")
        return found


@pytest.fixture(scope="module")
def pool_of_module(tmp_path_factory, runtime_dir):
    with leaves_nothing(), host(tmp_path_factory.mktemp("host")) as server:
        made = PoolOfModule(server)
        yield made
        made.pool.close()


@pytest.fixture
def pool(pool_of_module):
    """A pool of hosts one and two that is up, and whose ranks know nothing yet."""
    with leaves_nothing() as before:
        yield pool_of_module.pool
        before |= pool_of_module.traces()
    pool_of_module.renew()


@pytest.fixture
def sshd_of_pool(pool_of_module):
    return pool_of_module.server


def test_ranks_have_the_folder_and_the_umask_of_a_login(pool, sshd_of_pool):
    words = Path(f"/proc/{sshd_of_pool.pid}/status").read_text()
    umask = re.search(r"^Umask:\s*(\d+)", words, re.MULTILINE)[1]
    told = values(pool, "import os\n(os.getcwd(), os.umask(0o77), sorted(os.environ))")
    for folder, had, variables in told:
        assert folder == str(sshd_of_pool.home)
        assert had == int(umask, 8) != 0o77
        assert not [name for name in variables if name.startswith("SKYWARD_LOGIN")]


def test_what_is_ours_there_nobody_else_may_enter_or_read(pool):
    assert values(pool, "import os\nos.umask(0)\nb'x' * 5_000_000") == [b"x" * 5_000_000] * 2
    for node in (0, 1):
        made = pool_folders(f"{pool.pool_id}.{node}")
        for root in (made.runtime, made.store):
            for path in (root.parent, root, *root.glob("*")):
                assert path.lstat().st_mode & 0o77 == 0, path


def test_large_values_go_there_and_come_back(pool):
    big = np.random.default_rng(0).integers(0, 1 << 62, 4_000_000)
    assert values(pool, "big.sum()", {"big": big}) == [big.sum()] * 2
    back = values(pool, f"{RANK}import numpy as np\nnp.full(3_000_000, rank)")
    assert [each.sum() for each in back] == [0, 3_000_000]


def test_what_is_printed_comes_in_order_and_once(pool):
    events = []
    pool.look(lambda _: None)
    pool.run(request(pool, "for i in range(20000): print(i)"), events.append)
    for rank in (0, 1):
        assert printed(events, rank) == [str(i) for i in range(20000)]


def test_a_rank_that_dies_there(pool):
    outcome = pool.run(
        request(pool, f"{RANK}if rank == 1: os.kill(os.getpid(), 9)\ntime.sleep(60)"),
        lambda _: None,
    )
    assert set(outcome.lost) == {1}
    assert values(pool, "1 + 1") == [2, 2]


def test_connections_that_are_cut_in_a_run_are_made_anew(pool, sshd_of_pool, tmp_path):
    thread, events, outcomes = run_beside(pool, count(tmp_path / "may-end"))
    for word in ("<5>", "<25>"):
        wait_for_text(events, word)
        sshd_of_pool.cut()
    (tmp_path / "may-end").touch()
    thread.join(60)
    (outcome,) = outcomes
    assert [unpack(end.value, pool.store) for end in outcome.done.values()] == ["end"] * 2
    for rank in (0, 1):
        assert printed(events, rank) == [f"<{i}>" for i in range(60)]
    assert any(isinstance(each, Phase) and "trying to reach it" in each.text for each in events)


def test_an_sshd_that_is_away_for_a_while(pool, sshd_of_pool, tmp_path):
    thread, events, outcomes = run_beside(pool, count(tmp_path / "may-end"))
    wait_for_text(events, "<5>")
    sshd_of_pool.stop()
    wait_for_phase(events, "nothing listens")
    (tmp_path / "may-end").touch()
    sshd_of_pool.start()
    thread.join(60)
    assert len(outcomes[0].done) == 2
    for rank in (0, 1):
        assert printed(events, rank) == [f"<{i}>" for i in range(60)]


def test_a_line_that_is_cut_between_cells(pool, sshd_of_pool):
    values(pool, "kept = 3\nkept")
    sshd_of_pool.cut()
    assert values(pool, "kept") == [3, 3]


def test_values_go_on_where_their_line_was_cut(pool, sshd_of_pool):
    big = np.random.default_rng(1).bytes(100_000_000)

    def came():
        """Bytes that connections have read."""
        with contextlib.suppress(psutil.Error):
            return sum(each.io_counters().read_chars for each in sshd_of_pool.connections())
        return 0

    def cut():
        until(lambda: came() - before > 10_000_000)
        sshd_of_pool.cut()

    before = came()
    cutting = threading.Thread(target=cut)
    cutting.start()
    told = values(pool, "import hashlib\nhashlib.md5(big).hexdigest()", {"big": big})
    cutting.join()
    assert told == [hashlib.md5(big).hexdigest()] * 2
