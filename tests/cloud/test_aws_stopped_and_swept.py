"""Sweeps that meet stopped machines, against the API alone: what they list, end and leave."""

from __future__ import annotations

import asyncio
import time

import pytest
from cloud.warm import all_ended, rented, states, stopped, wake, woken_for

from skyward_nb.providers.aws import (
    boot,
    rental_records,
    sweep,
    termination,
)
from skyward_nb.providers.aws.rental_records import MakerProcess, Warmth
from skyward_nb.reports.cleanup import stopped_words
from skyward_nb.words.errors import StartError


def test_a_sweep_lists_them_and_ends_those_whose_time_is_over(api, renter, quick):
    made = stopped(renter)
    found = asyncio.run(sweep.sweep())
    assert not found and "for a later pool: 2 machines stopped until" in str(found)
    assert states(api) == ["stopped", "stopped"]
    assert "stopped for a later pool: i-" in stopped_words("%sky sweep")
    warmth = made.entry.record.warmth
    made.entry.note(warmth=Warmth(seconds=7200, needs=warmth.needs, until=time.time() - 1))
    assert not stopped_words("%sky sweep"), "their timer has ended them"
    found = asyncio.run(sweep.sweep())
    assert len(found.machines) == 2
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_a_sweep_says_nothing_of_those_that_a_pool_here_starts_just_now(api, renter, quick):
    made = stopped(renter)
    (as_it_was,) = rental_records.entries()
    assert wake(made) is not None
    found = sweep.SweepReport()
    asyncio.run(sweep._look_at_stopped(made.cloud, as_it_was, found, is_over=False))
    assert not found.left and not found.foreign and not found.machines
    assert not made.end()


def test_stopping_that_was_killed_is_ended_by_a_sweep(api, renter, quick):
    made = rented(renter)
    gone = MakerProcess(made.entry.record.maker.pid, 1.0, made.entry.record.maker.host)
    made.entry.note(state="stopping", maker=gone)
    found = asyncio.run(sweep.sweep())
    assert len(found.machines) == 2
    asyncio.run(sweep.sweep())
    assert api.left() == {}


def test_a_sweep_leaves_what_somebody_has_taken_meanwhile(api, renter, quick, monkeypatch):
    made = rented(renter)
    gone = MakerProcess(made.entry.record.maker.pid, 1.0, made.entry.record.maker.host)
    made.entry.note(state="stopping", maker=gone)
    states_of = termination.states_of

    async def meanwhile(*given):
        made.entry.note(state="launching", used_by="next-1", maker=MakerProcess.this())
        return await states_of(*given)

    monkeypatch.setattr(termination, "states_of", meanwhile)
    assert not asyncio.run(sweep.sweep()).machines
    assert states(api) == ["running", "running"]
    assert made.entry.record.state == "launching"
    assert not made.end()


def test_a_sweep_with_another_account_leaves_them_to_be_started(api, renter, quick):
    made = stopped(renter)
    made.entry.note(account="999999999999")
    found = asyncio.run(sweep.sweep(ends_stopped=True))
    assert "in account 999999999999" in str(found)
    (entry,) = rental_records.entries()
    assert entry.record.state == "stopped"
    made.entry.note(account="123456789012")
    all_ended(api)


def test_an_interrupt_while_a_failed_start_is_undone_ends_machines_all_the_same(
    api, renter, quick, monkeypatch
):
    made = stopped(renter)
    end, begun = termination.end, asyncio.Event()

    async def no_login(*_):
        raise StartError("default", "no login")

    async def slow_end(*arguments):
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(60)  # the calls of AWS take their time
        return await end(*arguments)

    monkeypatch.setattr(boot, "log_in_again", no_login)
    monkeypatch.setattr(termination, "end", slow_end)

    async def interrupted():
        task = asyncio.ensure_future(woken_for(made))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    assert set(states(api)) == {"terminated"}
    all_ended(api)
