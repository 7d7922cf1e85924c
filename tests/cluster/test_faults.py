"""Lines that are lost, late and lossy, servers that are restarted, hosts that are gone."""

from __future__ import annotations

import re
import threading
import time

import pytest
from cluster.notebooks import nothing_left
from waiting import until

pytestmark = pytest.mark.timeout(400)
HOSTS = 2
OPTIONS = "heartbeat=1s"
"""A host that is silent for three seconds is cut off."""

NOTICED = "trying to reach it again"

COUNT = """
for i in range({count}):
    print('line', i, flush=True)
    time.sleep(0.1)
socket.gethostname()
"""


def during(book, body, then, word="line 5", timeout=200.0):
    """Run a cell; `then` happens soon after its display says this word, and can ask what it says."""
    said = threading.Event()
    texts: list[str] = []
    failed: list[BaseException] = []

    def act():
        try:
            assert said.wait(100)
            then(lambda other: other in texts[-1])
        except BaseException as error:
            failed.append(error)

    def look(text):
        texts.append(text)
        if word in text:
            said.set()

    acting = threading.Thread(target=act)
    acting.start()
    ran = book.cell(body, timeout=timeout, on_update=look)
    acting.join()
    assert not failed, failed
    return ran


def impatient(town):
    """Have a login to a host that does not answer take two seconds, and not twenty."""
    town.says["ConnectTimeout"] = 2
    town.introduce()


def whole(ran, count, ranks="[0-1]"):
    """Every line of both ranks is shown, once."""
    assert ran.status == "ok", ran.traceback or ran.picture
    lines = [line for line in ran.picture.splitlines() if "] line" in line]
    shown = [line.partition("] ")[2] for line in lines]
    assert sorted(set(shown), key=lambda each: int(each.split()[1])) == [
        f"line {i}" for i in range(count)
    ]


def test_a_server_is_killed_and_started_again_in_a_run(book):
    host = book.town[1]

    def restart(says):
        host.stop_sshd()
        until(lambda: says(NOTICED))
        host.start_sshd()

    whole(during(book, COUNT.format(count=60), restart), 60)
    assert book.values("socket.gethostname()") == book.town.names


def test_connections_are_dropped_while_nothing_runs(book):
    book.well("kept = 3")
    for host in book.town:
        host.drop_lines()
    assert book.values("kept") == [3, 3]


def blink(book, line, seconds=0.0):
    """A line is cut in a run until that is noticed, and for so many seconds: nothing is missing."""

    def cut(says):
        line.cut()
        until(lambda: says(NOTICED))
        time.sleep(seconds)
        line.mend()

    whole(during(book, COUNT.format(count=60), cut), 60)
    assert book.values("socket.gethostname()") == book.town.names


def test_a_host_is_cut_off_for_a_while(book):
    blink(book, book.town[1].line)


def test_the_notebook_is_cut_off_for_a_while(book):
    blink(book, book.town.line)


@pytest.mark.extensive
def test_a_host_and_the_notebook_are_cut_off_for_half_a_minute(hosts, notebook):
    """With the heartbeat that pools have where nothing else is said."""
    town = hosts(2)
    with notebook(town) as book:
        for line in (town[1].line, town.line):
            blink(book, line, 15)


def test_a_pool_that_cannot_be_reached_is_not_said_to_be_gone(book):
    """The line is lost, the kernel with it: somebody impatient tries to go on at once."""
    book.well("kept = 5")
    book.town.line.cut()
    words = book.kernel.restart(by_kill=True)
    book.limit(2.0, "pool.registry._REACH")
    attach = re.search(r"%sky attach pool=\S+", words)[0]
    ran = book.kernel.run(attach, 90)
    assert ran.error[0] == "PoolError" and "cannot be reached now" in ran.error[1], ran.error
    book.town.line.mend()
    while (ran := book.kernel.run(attach, 90)).status != "ok":
        assert "which has ended" in ran.error[1] or "cannot be reached" in ran.error[1], ran.error
        time.sleep(0.2)
    assert book.kernel.run("%%sky_remote\nkept").result == "[0-1] 5"


def test_a_host_is_cut_off_for_good(hosts, notebook):
    """The person is told which, may stop the cell, and gets rid of the pool."""
    town = hosts(2)
    impatient(town)
    with notebook(town, leaves=True) as book:
        book.options += f" {OPTIONS}"

        def cut(says):
            town[1].cut()
            until(lambda: says("gpu2") and says(NOTICED))
            book.kernel.interrupt()

        ran = during(book, COUNT.format(count=3000), cut)
        assert ran.status == "error"
        down = book.kernel.run("%sky down all", 120)
        assert down.status == "ok", down.traceback
        # What is on the host that could be told is gone.
        nothing_left([town[0]])


def test_a_host_loses_its_power(new_hosts, notebook):
    """It is waited for as long as its agent would wait for the notebook, and no longer."""
    town = new_hosts(2)
    impatient(town)
    with notebook(town, leaves=True) as book:
        book.options += f" {OPTIONS} idle=4s"
        ran = during(book, "print('line 5')\ntime.sleep(1000)", lambda _: town[1].close())
        assert ran.status == "error"
        assert "gpu2" in ran.traceback, ran.traceback


def test_a_late_and_lossy_line_will_do(hosts, notebook):
    town = hosts(2)
    for host in town:
        host.netem(delay=0.05, loss=0.01)
    with notebook(town) as book:
        assert book.values("socket.gethostname()", timeout=150) == town.names
        book.here("large = os.urandom(4_000_000)")
        assert book.values("len(large)", timeout=150) == [4_000_000] * 2
        whole(book.well(COUNT.format(count=20)), 20)


def test_an_interrupt_is_not_behind_a_large_value(book):
    """What is urgent passes what is large, also on a slow line: that takes 100 s to bring it."""
    line = book.town[0].line
    line.netem(delay=0.03, rate=1e6)
    book.here("large = os.urandom(100_000_000)")
    _, before = line.moved()
    ran = book.kernel.pressed(
        book.code("len(large)"), lambda: line.moved()[1] - before > 2_000_000, timeout=60
    )
    assert ran.status == "error"
    assert book.values("socket.gethostname()") == book.town.names


def test_ranks_that_print_much_over_a_slow_line_are_interrupted_and_keep_their_names(book):
    for host in book.town:
        host.netem(delay=0.03, rate=400e3)
    book.well("kept = 3")
    ran = book.kernel.stopped(
        book.code("print('here')\nfor i in range(10**6):\n    print('line', i, 'x' * 60)"),
        timeout=100,
    )
    assert ran.status == "error"
    assert "killed" not in ran.picture, ran.picture
    assert book.values("kept") == [3, 3]


def test_memory_that_was_cleared_is_filled_again(book):
    """As systemd-logind clears it when the last login of a user is over."""
    book.here("first = os.urandom(3_000_000)\nsecond = os.urandom(4_000_000)")
    book.well("len(first)")
    for host in book.town:
        host.drop_lines()
        host.run("rm -r /dev/shm/*", user="ann")
    assert book.values("len(second), len(first)") == [(4_000_000, 3_000_000)] * 2


def test_an_agent_is_killed_on_its_host(hosts, notebook):
    town = hosts(2)
    with notebook(town) as book:

        def kill(_):
            for pid, words in town[1].processes().items():
                if "skyward_nb.node " in words:
                    town[1].kill(pid)

        ran = during(book, "print('line 5')\ntime.sleep(1000)", kill)
        assert ran.status == "error"
        down = book.kernel.run("%sky down all", 120)
        assert down.status == "ok", down.traceback
        assert book.values("socket.gethostname()") == town.names
