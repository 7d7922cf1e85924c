"""Sequences are drawn by seed, cut to their shortest failing part, and compared with plain IPython; some are played."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from chaos import table
from chaos.oracle import WORLD, Oracle, source
from chaos.player import LIMIT, Limit, Played, play
from chaos.shrink import shortest
from chaos.steps import (
    CELLS,
    MISUSES,
    Down,
    Fill,
    Idle,
    Interrupt,
    Kernel,
    Misuse,
    Part,
    Restart,
    Run,
    Sequence,
    Signal,
    draw,
)


def test_a_seed_gives_one_sequence():
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_seeds_give_every_step_cell_misuse_and_part():
    drawn = [step for seed in range(400) for step in draw(seed).steps]
    assert {type(each) for each in drawn} == {Run, Misuse, Idle, Fill, Restart, Kernel, Down}
    assert {each.cell for each in drawn if isinstance(each, Run)} == set(CELLS)
    assert {each.cell for each in drawn if isinstance(each, Misuse)} == set(MISUSES)
    faults = [fault for each in drawn if isinstance(each, Run | Idle) for fault in each.faults]
    assert {each.part for each in faults if isinstance(each, Signal)} == set(Part)
    assert {each.pool for each in drawn} == {*WORLD, ""}


RIGHT = Run("a", "adds", 1)
WRONG = Restart("b")


@pytest.mark.parametrize("at", range(9))
def test_the_step_that_fails_is_found(at):
    steps = tuple(WRONG if index == at else RIGHT for index in range(9))
    found = shortest(Sequence(steps), lambda part: WRONG in part.steps)
    assert found.steps == (WRONG,)


def test_steps_that_fail_together_are_found():
    steps = (RIGHT, WRONG, *4 * (RIGHT,), Down("a"), RIGHT)
    found = shortest(Sequence(steps, "torch"), lambda part: {WRONG, Down("a")} <= set(part.steps))
    assert found == Sequence((WRONG, Down("a")), "torch")


def test_faults_that_are_not_needed_are_left_out():
    early, late = Interrupt(0.1), Interrupt(0.2)
    steps = (Run("a", "adds", 1, (early, late)), RIGHT)
    found = shortest(Sequence(steps), lambda part: any(late in each.faults for each in part.steps))
    assert found.steps == (Run("a", "adds", 1, (late,)),)


def test_no_more_is_played_than_asked():
    plays = []
    shortest(draw(1), lambda part: plays.append(part) or False, most=5)
    assert len(plays) == 5


def test_what_does_not_fail_again_stays_whole():
    assert shortest(draw(1), lambda part: False) == draw(1)


def test_plain_ipython_gives_a_value_for_each_rank():
    oracle = Oracle()
    oracle.run("base = 4")
    assert oracle.values("a", source("adds", 1)) == [41, 42, 43]
    assert oracle.values("b", source("collective", 2)) == [12, 13]
    assert all(len(oracle.values("a", source(each, 3))) == 3 for each in CELLS)


def test_the_page_counts_what_was_played():
    well = Played(steps=3, faults=Counter({"interrupt": 2}), seconds=60)
    failed = Played("left behind\nmore", steps=1, faults=Counter({"interrupt": 1}), seconds=60)
    where = table.ground("MINUTES=1", "abc", 2, [0.4, 7.6, 3.0])
    page = table.written([(1, well), (2, failed)], where)
    assert "`make chaos MINUTES=1` on abc, 2 processors with a load of 0 to 8." in page
    assert "Seeds 1 to 2: 2 sequences in 2 minutes, 4 steps, 3 faults, 1 defects." in page
    assert "| interrupt | 3 |" in page
    assert "- seed 2: left behind\n" in page


def test_a_cell_has_more_time_where_the_machine_has_become_slower():
    seconds = iter([2.0, 2.0, 7.0, 6.0])
    limit = Limit(3, lambda: next(seconds))
    assert limit.seconds == LIMIT + 6
    assert [limit.again() for _ in range(3)] == [0, 15, 0]
    assert limit.seconds == LIMIT + 21


@pytest.mark.extensive
@pytest.mark.timeout(120)
def test_a_short_sequence_is_played(no_leaks):
    steps = (
        Run("a", "sleeps", 2, (Interrupt(0.1), Interrupt(0.2))),
        Run("a", "sums", 2, (Signal(Part.RANK, 9, 0.05),)),
        Misuse("a", "forks four times", restarts=True),
        Idle("a", (Signal(Part.AGENT, 9, 0.0),)),
        Down(),
    )
    played = play(Sequence(steps))
    assert not played.defect
    assert played.steps == len(steps)
    # Others are not played where a cell ends before them.
    assert played.faults >= Counter({"misuse: forks four times": 1, "agent: SIGKILL": 1})


@pytest.mark.extensive
@pytest.mark.timeout(1200)
def test_ten_minutes_have_no_defect():
    faulthandler.cancel_dump_traceback_later()  # it is to take so long
    words = [sys.executable, "-m", "chaos", "--minutes", "10", "--shrink", "0"]
    ran = subprocess.run(
        words, cwd=Path(__file__).parents[1], env=os.environ, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout
