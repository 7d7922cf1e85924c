"""Lines that are slow, and servers that drop them: interrupts pass what is large, and nothing is lost."""

from __future__ import annotations

import pytest
from cluster.during import COUNT, NOTICED, OPTIONS, during, whole
from waiting import until

pytestmark = pytest.mark.timeout(400)
HOSTS = 2
__all__ = ["OPTIONS"]


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


@pytest.mark.extensive
def test_ranks_that_print_much_over_a_slow_line_are_interrupted_and_keep_their_names(book):
    for host in book.town:
        host.netem(delay=0.03, rate=400e3)
    book.well("kept = 3")
    ran = book.kernel.stopped(
        book.code("for i in range(10**6):\n    print('line', i, 'x' * 60)"),
        "x" * 60,  # of any line: the first one may be out of sight before the picture is drawn
        timeout=100,
    )
    assert ran.status == "error"
    assert "killed" not in ran.picture, ran.picture
    assert book.values("kept") == [3, 3]


@pytest.mark.extensive
def test_a_server_is_killed_and_started_again_in_a_run(book):
    host = book.town[1]

    def restart(says):
        host.stop_sshd()
        until(lambda: says(NOTICED))
        host.start_sshd()

    whole(during(book, COUNT.format(count=60), restart), 60)
    assert book.values("socket.gethostname()") == book.town.names


@pytest.mark.extensive
def test_connections_are_dropped_while_nothing_runs(book):
    book.well("kept = 3")
    for host in book.town:
        host.drop_lines()
    assert book.values("kept") == [3, 3]


@pytest.mark.extensive
def test_memory_that_was_cleared_is_filled_again(book):
    """As systemd-logind clears it when the last login of a user is over."""
    book.here("first = os.urandom(3_000_000)\nsecond = os.urandom(4_000_000)")
    book.well("len(first)")
    for host in book.town:
        host.drop_lines()
        host.run("rm -r /dev/shm/*", user="ann")
    assert book.values("len(second), len(first)") == [(4_000_000, 3_000_000)] * 2
