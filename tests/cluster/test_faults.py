"""Lines that are lost, late and lossy, servers that are restarted, hosts that are gone."""

from __future__ import annotations

import re
import threading
import time

import pytest
from cluster.notebooks import notebook, nothing_left

pytestmark = pytest.mark.timeout(400)

COUNT = """
for i in range({count}):
    print('line', i, flush=True)
    time.sleep(0.1)
socket.gethostname()
"""


def during(book, body, then, word="line 5", timeout=200.0):
    """Run a cell; what is to happen `then` happens soon after its display says this word."""
    said = threading.Event()
    failed: list[BaseException] = []

    def act():
        try:
            assert said.wait(100)
            then()
        except BaseException as error:
            failed.append(error)

    acting = threading.Thread(target=act)
    acting.start()
    ran = book.cell(body, timeout=timeout, on_update=lambda text: word in text and said.set())
    acting.join()
    assert not failed, failed
    return ran


def whole(ran, count, ranks="[0-1]"):
    """Every line of both ranks is shown, once."""
    assert ran.status == "ok", ran.traceback or ran.picture
    lines = [line for line in ran.picture.splitlines() if "] line" in line]
    shown = [line.partition("] ")[2] for line in lines]
    assert sorted(set(shown), key=lambda each: int(each.split()[1])) == [
        f"line {i}" for i in range(count)
    ]


def test_a_server_is_killed_and_started_again_in_a_run(hosts):
    town = hosts(2)
    with notebook(town) as book:
        book.well("1")

        def restart():
            town[1].stop_sshd()
            time.sleep(2)
            town[1].start_sshd()

        ran = during(book, COUNT.format(count=60), restart)
        whole(ran, 60)
        assert book.values("socket.gethostname()") == town.names


def test_connections_are_dropped_while_nothing_runs(hosts):
    town = hosts(2)
    with notebook(town) as book:
        book.well("kept = 3")
        for host in town:
            host.drop_lines()
        assert book.values("kept") == [3, 3]


def test_a_host_is_cut_off_for_half_a_minute(hosts):
    town = hosts(2)
    with notebook(town) as book:
        book.well("1")

        def blink():
            town[1].cut()
            time.sleep(30)
            town[1].mend()

        ran = during(book, COUNT.format(count=100), blink)
        whole(ran, 100)
        assert book.values("socket.gethostname()") == town.names


def test_the_notebook_is_cut_off_for_a_while(hosts):
    town = hosts(2)
    with notebook(town) as book:
        book.well("1")

        def blink():
            town.line.cut()
            time.sleep(20)
            town.line.mend()

        whole(during(book, COUNT.format(count=60), blink), 60)


def test_a_pool_that_cannot_be_reached_is_not_said_to_be_gone(hosts):
    """The line is lost, the kernel with it: somebody impatient tries to go on at once."""
    town = hosts(2)
    with notebook(town) as book:
        book.well("kept = 5")
        town.line.cut()
        time.sleep(1)
        words = book.kernel.restart(by_kill=True)
        attach = re.search(r"%sky attach pool=\S+", words)[0]
        ran = book.kernel.run(attach, 90)
        assert ran.error[0] == "PoolError" and "cannot be reached now" in ran.error[1], ran.error
        town.line.mend()
        while (ran := book.kernel.run(attach, 90)).status != "ok":
            assert "which has ended" in ran.error[1] or "cannot be reached" in ran.error[1], (
                ran.error
            )
            time.sleep(1)
        assert book.kernel.run("%%sky_remote\nkept").result == "[0-1] 5"


def test_a_host_is_cut_off_for_good(hosts):
    """The person is told which, may stop the cell, and gets rid of the pool."""
    town = hosts(2)
    with notebook(town, leaves=True) as book:
        book.well("1")
        told = threading.Event()

        def cut():
            town[1].cut()
            told.wait(90)
            book.kernel.interrupt()

        def look(text):
            if "line 5" in text:
                said.set()
            if "gpu2" in text or "no answer" in text or "reconnect" in text:
                told.set()

        said = threading.Event()
        acting = threading.Thread(target=lambda: said.wait(100) and cut())
        acting.start()
        ran = book.cell(COUNT.format(count=3000), timeout=250, on_update=look)
        acting.join()
        assert ran.status == "error"
        assert told.is_set(), ran.picture
        down = book.kernel.run("%sky down all", 120)
        assert down.status == "ok", down.traceback
        # What is on the host that could be told is gone.
        nothing_left([town[0]])


def test_a_host_loses_its_power(hosts):
    """It is waited for as long as its agent would wait for the notebook, and no longer."""
    town = hosts(2)
    with notebook(town, leaves=True) as book:
        book.options += " idle=20s"
        book.well("1")
        ran = during(book, "print('line 5')\ntime.sleep(1000)", town[1].close, timeout=100)
        assert ran.status == "error"
        assert "gpu2" in ran.traceback, ran.traceback


def test_a_late_and_lossy_line_will_do(hosts):
    town = hosts(2)
    for host in town:
        host.netem(delay=0.05, loss=0.01)
    with notebook(town) as book:
        assert book.values("socket.gethostname()", timeout=150) == town.names
        book.here("large = os.urandom(8_000_000)")
        assert book.values("len(large)", timeout=150) == [8_000_000] * 2
        whole(book.well(COUNT.format(count=20)), 20)


def test_an_interrupt_is_not_behind_a_large_value(hosts):
    """What is urgent passes what is large, also on a slow line."""
    town = hosts(1)
    town[0].netem(delay=0.03, rate=2e6)
    with notebook(town) as book:
        book.well("1")
        book.here("large = os.urandom(200_000_000)")
        began = threading.Timer(4.0, book.kernel.interrupt)
        began.start()
        ran = book.cell("len(large)", timeout=60)
        assert ran.status == "error"
        assert book.values("socket.gethostname()") == town.names


def test_ranks_that_print_much_over_a_slow_line_are_interrupted_and_keep_their_names(hosts):
    town = hosts(1)
    town[0].netem(delay=0.03, rate=400e3)
    with notebook(town) as book:
        book.well("kept = 3", timeout=150)
        ran = book.kernel.stopped(
            book.code("print('here')\nfor i in range(10**6):\n    print('line', i, 'x' * 60)"),
            timeout=100,
        )
        assert ran.status == "error"
        assert "killed" not in ran.picture, ran.picture
        assert book.values("kept") == [3]


def test_memory_that_was_cleared_is_filled_again(hosts):
    """As systemd-logind clears it when the last login of a user is over."""
    town = hosts(2)
    with notebook(town) as book:
        book.here("first = os.urandom(3_000_000)\nsecond = os.urandom(4_000_000)")
        book.well("len(first)")
        for host in town:
            host.drop_lines()
            host.run("rm -r /dev/shm/*", user="ann")
        assert book.values("len(second), len(first)") == [(4_000_000, 3_000_000)] * 2


def test_an_agent_is_killed_on_its_host(hosts):
    town = hosts(2)
    with notebook(town, leaves=True) as book:
        book.well("1")

        def kill():
            for pid, words in town[1].processes().items():
                if "skyward_nb.node " in words:
                    town[1].kill(pid)

        ran = during(book, "print('line 5')\ntime.sleep(1000)", kill)
        assert ran.status == "error"
        down = book.kernel.run("%sky down all", 120)
        assert down.status == "ok", down.traceback
        assert book.values("socket.gethostname()") == town.names
