"""Lines that are lost and come back: hosts and notebooks that are cut off."""

from __future__ import annotations

import re
import time

import pytest
from cluster.during import COUNT, NOTICED, OPTIONS, during, whole
from waiting import until

pytestmark = pytest.mark.timeout(400)
HOSTS = 2
__all__ = ["OPTIONS"]


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


@pytest.mark.extensive
def test_the_notebook_is_cut_off_for_a_while(book):
    blink(book, book.town.line)


@pytest.mark.extensive
def test_a_host_and_the_notebook_are_cut_off_for_half_a_minute(hosts, notebook):
    """With the heartbeat that pools have where nothing else is said."""
    town = hosts(2)
    with notebook(town) as book:
        for line in (town[1].line, town.line):
            blink(book, line, 15)


@pytest.mark.extensive
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
