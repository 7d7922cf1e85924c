"""Work on the loop thread that is given up: waited for, and named where its cleaning takes long."""

import asyncio
import threading

import pytest

from skyward_nb.providers import loop_thread
from skyward_nb.providers.loop_thread import LOOP, wait_for_cleaning


def test_work_that_still_cleans_up_is_named_and_the_end_of_the_process_waits(monkeypatch, capsys):
    monkeypatch.setattr(loop_thread, "_GIVE_UP", 0.01)
    begun, taken_down, is_down = threading.Event(), threading.Event(), []

    async def work():
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(taken_down.wait)
            is_down.append(True)

    going = LOOP.start(work(), "the start of pool p")
    assert begun.wait(60)
    with pytest.warns(UserWarning, match="the start of pool p is interrupted, .*%sky sweep"):
        going.give_up()
    assert not is_down

    def waiting(*words, **how):
        print(*words, **how)
        taken_down.set()

    # What it waits for ends once it is said to be waited for: a quicker one would not be named.
    monkeypatch.setattr(loop_thread, "print", waiting, raising=False)
    wait_for_cleaning()
    assert is_down and "the start of pool p: waiting" in capsys.readouterr().err
    wait_for_cleaning()
    assert not capsys.readouterr().err
