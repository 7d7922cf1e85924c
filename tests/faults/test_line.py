"""A bad line between a pool and its agent: late, in pieces, broken off at every byte of a session.

What runs and what is told is the same as on a good one: no command is obeyed twice, no word is
missing and none comes twice.
"""

from __future__ import annotations

import random
import time

import psutil
import pytest
from faults.channel import DOWN, UP, Channel, Rule, found_through, pool_through
from faults.hands import HANG, Hang, agent_of
from pools import request, values
from tiers import few
from waiting import until as wait_until

from skyward_nb.pickling.payload import unpack
from skyward_nb.protocol.commands import Run
from skyward_nb.protocol.events import Output, Phase
from skyward_nb.protocol.frames import Cutter, command_frames, event_frames
from skyward_nb.words.errors import PoolError

# A command that came twice would count twice.
COUNTS = "count = globals().get('count', 0) + 1\nprint('run', count)\nprint('done')\ncount"
SOME = 31
"""`make test` breaks the line at every 31st byte, and `--all` at every one."""


@pytest.fixture
def channel():
    made = Channel()
    yield made
    made.close()


@pytest.fixture
def pool(channel, no_leaks):
    made = pool_through(channel)
    yield made
    channel.obey(Rule())
    made.close()


@pytest.fixture
def pool_of_short_patience(channel, no_leaks):
    made = pool_through(channel, heartbeat=0.1, idle=2.0)
    yield made
    channel.obey(Rule())
    made.close()


def run(pool, body, namespace=None):
    """What each rank gave and printed."""
    said: dict[int, str] = {}
    began = time.monotonic()

    def hear(event):
        if time.monotonic() - began > HANG:
            raise Hang(f"no end after {HANG:g} s; ranks said {said}")
        if isinstance(event, Output):
            said[event.rank] = said.get(event.rank, "") + event.text

    pool.look(hear)
    outcome = pool.run(request(pool, body, namespace), hear)
    assert not outcome.failed
    assert not outcome.lost
    pool.seen()
    gave = {rank: unpack(end.value, pool.store) for rank, end in outcome.done.items()}
    return gave, said


def counted(number):
    """What `COUNTS` gives and prints when it runs for the `number`th time."""
    return dict.fromkeys((0, 1), number), dict.fromkeys((0, 1), f"run {number}\ndone\n")


def cut_off_in(pool, channel, body, until):
    """Run a cell and let nothing through once it runs, `until` what is told of that; what was told."""
    told: list[str] = []

    def hear(event):
        if isinstance(event, Output):
            channel.obey(Rule(silent=True))
        elif isinstance(event, Phase):
            told.append(event.text)
            if until(event.text):
                channel.obey(Rule())

    outcome = pool.run(request(pool, f"import time\nprint('on')\n{body}"), hear)
    assert not outcome.lost
    pool.seen()
    return told


def recorded(pool, channel):
    """The bytes of one run, both ways; they differ by a few from run to run, as numbers grow."""
    values(pool, "1")
    channel.obey(Rule())
    assert run(pool, COUNTS) == counted(1)
    return channel.passed(UP), channel.passed(DOWN)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("resets", [False, True], ids=["truncated", "reset"])
@pytest.mark.parametrize("way", [UP, DOWN])
def test_a_line_that_breaks_off_at_any_byte_of_a_run(pool, channel, way, resets, pytestconfig):
    session = recorded(pool, channel)
    assert min(map(len, session)) > 200
    step = 1 if pytestconfig.getoption("--all") else SOME
    ends = range(0, len(session[way == DOWN]) + 8, step)
    broken = 0
    for number, end in enumerate(ends, start=2):
        channel.obey(Rule(breaks_at={way: end}, resets=resets))
        assert run(pool, COUNTS) == counted(number), f"after {end} bytes {way}"
        # A run may take fewer bytes than the one recorded, as what ranks print comes in one event or two.
        is_shorter = len(channel.passed(way)) < end
        assert channel.broken or is_shorter
        broken += channel.broken
    assert broken > 0.5 * len(ends)
    assert pool.generation == 1


@pytest.mark.extensive
@pytest.mark.parametrize("resets", few(1, [False, True]), ids=["truncated", "reset"])
def test_a_line_that_breaks_off_again_and_again(pool, channel, resets):
    recorded(pool, channel)
    body = "for i in range(60_000): print(i)\ncount = globals().get('count', 0) + 1\ncount"
    printed = "".join(f"{number}\n" for number in range(60_000))
    dice = random.Random(11)
    for number in range(2, 6):
        # What gets through is whole frames, and the largest of them has to fit.
        breaks = {UP: 5000, DOWN: dice.randint(70_000, 120_000)}
        channel.obey(Rule(breaks_at=breaks, again=True, resets=resets))
        assert run(pool, body) == (dict.fromkeys((0, 1), number), dict.fromkeys((0, 1), printed))
        assert channel.broken > 3


@pytest.mark.parametrize("delay", few(1, [0.0, 0.0005]), ids=["at-once", "late"])
def test_a_session_in_pieces_of_a_few_bytes(channel, no_leaks, delay):
    channel.obey(Rule(pieces=7, delay=delay, seed=3))
    pool = pool_through(channel, heartbeat=10.0)
    for number in range(1, 4):
        assert run(pool, COUNTS) == counted(number)
    pool.restart(lambda _: None)
    assert run(pool, COUNTS) == counted(1)
    gave, _ = run(pool, "len(text)", {"text": "word " * 1000})
    assert gave == {0: 5000, 1: 5000}
    pool.leave()
    again = found_through(channel, pool)
    again.attach(lambda _: None)
    assert run(again, COUNTS) == counted(2)
    again.close()


def test_a_pool_whose_line_was_cut_is_told_to_stop_all_the_same(channel, no_leaks):
    pool = pool_through(channel)
    agent = psutil.Process(agent_of(pool))
    channel.obey(Rule(breaks_at={DOWN: 0}))
    pool.lines.links[0].ask()
    wait_until(lambda: channel.broken)
    channel.close()  # what is sent from now on is not lost with that line
    channel.obey(Rule())
    pool.close()
    assert "Stop" in str(command_frames().feed(channel.passed(UP)))
    assert not agent.is_running()


@pytest.mark.extensive
def test_a_line_that_is_late(channel, no_leaks):
    channel.obey(Rule(delay=0.05, seed=5))
    pool = pool_through(channel, heartbeat=0.05)
    for number in range(1, 6):
        assert run(pool, COUNTS) == counted(number)
    pool.close()


@pytest.mark.extensive
def test_a_machine_that_is_cut_off_for_a_while(pool_of_short_patience, channel):
    pool = pool_of_short_patience
    for number in range(1, 4):
        told = cut_off_in(pool, channel, "time.sleep(1)", until=lambda said: "not answered" in said)
        assert told.pop() == "", "it was reached again"
        assert run(pool, COUNTS) == counted(number)
    assert pool.generation == 1


@pytest.mark.extensive
def test_a_machine_that_is_cut_off_for_good(pool_of_short_patience, channel):
    pool = pool_of_short_patience
    agent = psutil.Process(agent_of(pool))
    with pytest.raises(PoolError, match=r"is gone: .*has not answered.*could not be reached for"):
        cut_off_in(pool, channel, "time.sleep(60)", until=lambda said: False)
    assert pool.closed
    assert not agent.is_running()


def test_a_line_that_breaks_off_while_the_pool_starts(channel, no_leaks, pytestconfig):
    pool = pool_through(channel)
    assert channel.lines == 1
    bytes_of_a_start = len(channel.passed(DOWN))
    pool.close()
    dice = random.Random(13)
    # Starts differ by a few bytes, so that none of these may be the last.
    breaks = 20 if pytestconfig.getoption("--all") else 2
    for end in sorted(dice.sample(range(1, bytes_of_a_start * 9 // 10), breaks)):
        channel.obey(Rule(breaks_at={DOWN: end}))
        pool = pool_through(channel)
        try:
            assert run(pool, COUNTS) == counted(1)
            assert channel.broken == 1
        finally:
            pool.close()


def test_a_recorded_session_is_read_alike_in_every_split(pool, channel):
    up, down = recorded(pool, channel)
    sent, heard = command_frames().feed(up), event_frames().feed(down)
    assert sum(isinstance(command, Run) for command in sent) == 1
    assert "".join(event.text for event in heard if isinstance(event, Output) and event.rank == 0)
    for stream, frames, whole in ((up, command_frames, sent), (down, event_frames, heard)):
        for cut in range(len(stream) + 1):
            parts = frames()
            assert parts.feed(stream[:cut]) + parts.feed(stream[cut:]) == whole
        for size in range(1, 8):
            parts, cutter = frames(), Cutter()
            pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
            assert [message for piece in pieces for message in parts.feed(piece)] == whole
            assert b"".join(map(cutter.feed, pieces)) == stream


def test_two_cuts_anywhere_in_a_few_frames(pool, channel):
    _, down = recorded(pool, channel)
    whole, short = event_frames().feed(down), b""
    for _, data in event_frames().feed_both(down):
        short += data if len(short) + len(data) < 200 else b""
    expected = event_frames().feed(short)
    assert 1 < len(expected) <= len(whole)
    for first in range(len(short) + 1):
        for second in range(first, len(short) + 1):
            frames = event_frames()
            pieces = (short[:first], short[first:second], short[second:])
            assert [message for piece in pieces for message in frames.feed(piece)] == expected
