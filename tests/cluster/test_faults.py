"""Hosts that are gone, and agents that are: cut off for good, without power, killed; and lines that lose much."""

from __future__ import annotations

import pytest
from cluster.during import COUNT, NOTICED, OPTIONS, during, impatient, whole
from cluster.notebooks import nothing_left
from waiting import until

pytestmark = pytest.mark.timeout(400)


def test_a_host_is_cut_off_for_good(hosts, notebook):
    """The person is told which, may stop the cell, and gets rid of the pool."""
    town = hosts(2)
    with notebook(town, leaves=True) as book:
        book.options += f" {OPTIONS}"
        book.well("1")

        def cut(says):
            impatient(town)
            town[1].cut()
            until(lambda: says("gpu2") and says(NOTICED))
            book.kernel.interrupt()

        ran = during(book, COUNT.format(count=3000), cut)
        assert ran.status == "error"
        down = book.kernel.run("%sky down all", 120)
        assert down.status == "ok", down.traceback
        # What is on the host that could be told is gone.
        nothing_left([town[0]])


@pytest.mark.extensive
def test_a_host_loses_its_power(new_hosts, notebook):
    """It is waited for as long as its agent would wait for the notebook, and no longer."""
    town = new_hosts(2)
    with notebook(town, leaves=True) as book:
        book.options += f" {OPTIONS} idle=4s"
        book.well("1")
        impatient(town)
        ran = during(book, "print('line 5')\ntime.sleep(1000)", lambda _: town[1].close())
        assert ran.status == "error"
        assert "gpu2" in ran.traceback, ran.traceback


@pytest.mark.extensive
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


@pytest.mark.extensive
def test_a_late_and_lossy_line_will_do(hosts, notebook):
    town = hosts(2)
    for host in town:
        host.netem(delay=0.05, loss=0.01)
    with notebook(town) as book:
        assert book.values("socket.gethostname()", timeout=150) == town.names
        book.here("large = os.urandom(4_000_000)")
        assert book.values("len(large)", timeout=150) == [4_000_000] * 2
        whole(book.well(COUNT.format(count=20)), 20)
