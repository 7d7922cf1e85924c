"""Pools of functions: how they begin and end, in scripts and in event loops, and stand beside one another."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest
from functions.examples import HEAD, place, slowly, twice, wait_for
from scripts import begin, run_text
from tiers import few
from waiting import until

import skyward_nb as sky
from skyward_nb.pool.pool import Pool
from skyward_nb.show.display import RunDisplay


@sky.function
def fail(why):
    raise ValueError(why)


@pytest.mark.parametrize("whose, name", [(RunDisplay, "end"), (sky.Compute, "_take_jobs")])
def test_an_interrupt_just_as_it_is_up_leaves_nothing(no_leaks, monkeypatch, whose, name):
    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(whose, name, interrupted)
    with pytest.raises(KeyboardInterrupt), sky.Compute(quiet=True):
        pytest.fail("it was interrupted")


def test_an_interrupt_between_its_start_and_its_block_leaves_nothing(no_leaks, monkeypatch):
    started = sky.Compute.start

    def interrupted(pool):
        started(pool)
        raise KeyboardInterrupt

    monkeypatch.setattr(sky.Compute, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), sky.Compute(quiet=True):
        pytest.fail("it was interrupted")


def test_a_block_can_be_entered_once_more_where_its_machines_did_not_come_again(
    no_leaks, monkeypatch
):
    pool = sky.Compute(quiet=True).start()
    pool._runner.pool.close()  # its machines are lost
    with monkeypatch.context() as patched:
        patched.setattr(Pool, "start", lambda *_, **__: pytest.fail("no capacity"))
        with pytest.raises(pytest.fail.Exception), pool:
            """It does not come so far."""
    with pool:
        assert twice(3) >> pool == 6


@pytest.mark.extensive
def test_pools_stand_beside_and_within_one_another(no_leaks):
    with sky.Compute(nodes=2, quiet=True) as outer, sky.Compute(quiet=True) as inner:
        assert outer.name != inner.name
        assert twice(1) @ outer + twice(2) @ inner == [2, 2, 4]
        with sky.Compute(quiet=True) as innermost:
            futures = [slowly(1) > outer, slowly(2) > inner, slowly(3) > innermost]
            assert [future.result() for future in futures] == [1, 2, 3]
        assert twice(3) >> inner == 6


@pytest.mark.extensive
def test_a_pool_per_thread(no_leaks):
    found = []

    def work(number):
        with sky.Compute(quiet=True) as pool:
            found.append(twice(number) >> pool)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 2]


def test_an_exception_that_leaves_the_block_ends_the_pool(no_leaks):
    with pytest.raises(ZeroDivisionError):
        with sky.Compute(quiet=True) as pool:
            waiting = slowly(1, 60) > pool
            assert until(waiting.running)
            1 / 0  # noqa: B018
    assert waiting.done()
    assert isinstance(waiting.exception(), sky.PoolError)


def test_a_pool_is_closed_as_often_as_one_likes(no_leaks):
    pool = sky.Compute(quiet=True)
    pool.close()
    pool = sky.Compute(quiet=True).start()
    pool.close()
    pool.close()
    for use in (
        lambda: twice(1) >> pool,
        lambda: twice(1) @ pool,
        lambda: twice(1) > pool,
        lambda: (twice(1) & twice(2)) >> pool,
        lambda: pool.map(twice, [1]),
        lambda: pool.start(),
        lambda: next(sky.gather(twice(1), stream=True) >> pool),
    ):
        with pytest.raises(sky.PoolError, match="is closed"):
            use()


def test_a_pool_that_is_not_started_starts_when_it_is_used(no_leaks):
    pool = sky.Compute(quiet=True)
    assert "not started" in repr(pool)
    assert twice(2) >> pool == 4
    assert ", up" in repr(pool)
    pool.close()
    assert ", closed" in repr(pool)


def test_two_pools_have_not_one_name(no_leaks):
    with sky.Compute(name="mine", quiet=True):
        with pytest.raises(sky.PoolError, match="has a pool 'mine' already"):
            sky.Compute(name="mine", quiet=True).start()
    with sky.Compute(name="mine", quiet=True) as again:
        assert twice(1) >> again == 2


# ── async ───────────────────────────────────────────────────────────────────────────────


def test_a_pool_within_an_event_loop_that_runs(no_leaks):
    async def main():
        with sky.Compute(nodes=2, quiet=True) as pool:
            return twice(1) @ pool, twice(2) >> pool

    assert asyncio.run(main()) == ([2, 2], 4)


def test_async_with_gives_what_is_awaited(no_leaks, tmp_path):
    async def main():
        ticks = 0

        async def clock():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        going = asyncio.create_task(clock())
        async with sky.Compute(nodes=2, quiet=True) as pool:
            assert await (slowly(1) @ pool) == [1, 1]
            assert await (slowly(2) >> pool) == 2
            assert await ((slowly(3) & slowly(4)) >> pool) == (3, 4)
            assert await (place() >> pool.node(1)) == (1, 1)
            calls = sky.gather(wait_for(tmp_path / "a", "b"), twice("a"), stream=True)
            found = []
            async for one in calls >> pool:
                found.append(one)
                (tmp_path / "a").touch()
            assert found == ["aa", "b"]
            assert await pool.map(twice, [1, 2, 3]) == [2, 4, 6]
            with pytest.raises(ValueError, match="awaited"):
                await (fail("awaited") >> pool)
            sleeping = asyncio.create_task(pool.run(slowly(1, 60)))
            await asyncio.sleep(0.2)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
            assert await (twice(1) @ pool) == [2, 2]
        going.cancel()
        return ticks

    assert asyncio.run(main()) > 10


def test_a_task_that_is_cancelled_while_a_pool_starts_leaves_none(no_leaks, monkeypatch):
    starts, began = sky.Compute.start, threading.Event()

    def start(compute):
        began.set()
        return starts(compute)

    async def enter(compute):
        async with compute:
            await asyncio.sleep(60)

    async def main():
        compute = sky.Compute(nodes=1, quiet=True)
        entering = asyncio.create_task(enter(compute))
        await asyncio.to_thread(began.wait, 60)
        for _ in range(2):  # and whoever waits for that is cancelled, too
            entering.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await entering
        with pytest.raises(sky.PoolError, match="is closed"):
            starts(compute)

    monkeypatch.setattr(sky.Compute, "start", start)
    asyncio.run(main())


# ── scripts ─────────────────────────────────────────────────────────────────────────────


def test_a_script_that_forgets_to_close_leaves_nothing(no_leaks, tmp_path):
    ran = run_text(
        HEAD + "f = sky.function(os.getpid)\n"
        "pool = sky.Compute(nodes=2, quiet=True)\n"
        "print(len(f() @ pool))\n"
        "waiting = sky.function(time.sleep)(60) > pool\n",
        tmp_path,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "2\n", "")


@pytest.mark.parametrize(
    "end",
    few(1, ["1 / 0", "sys.exit(7)", "raise SystemExit(7)"]),
)
def test_a_script_that_ends_inside_the_block_leaves_nothing(no_leaks, tmp_path, end):
    ran = run_text(
        HEAD + f"with sky.Compute(quiet=True) as pool:\n    pool.start()\n    {end}\n", tmp_path
    )
    assert ran.returncode == (1 if "/" in end else 7)


INTERRUPTED = (
    HEAD
    + """
@sky.function
def wait():
    print("waiting", flush=True)
    time.sleep(60)

try:
    with sky.Compute(nodes=2) as pool:
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", sky.function(os.getpid)() >> pool > 0)
            raise
except KeyboardInterrupt:
    print("ended")
"""
)


CALLS = {
    "one": "wait() >> pool",
    "every": "wait() @ pool",
    "future": "(wait() > pool).result()",
}
MORE_CALLS = {
    "group": "(wait() & wait()) >> pool",
    "stream": "list(sky.gather(wait(), wait(), stream=True) >> pool)",
    "map": "pool.map(lambda x: wait.local(), range(4))",
}


@pytest.mark.parametrize(
    "call",
    few(2, [*CALLS, *MORE_CALLS]),
)
def test_an_interrupt_stops_the_call_and_the_pool_goes_on(no_leaks, tmp_path, call):
    path = tmp_path / "script.py"
    path.write_text(INTERRUPTED.replace("{call}", (CALLS | MORE_CALLS)[call]))
    script = begin(path)
    assert any("waiting" in line for line in iter(script.stdout.readline, ""))
    script.send_signal(signal.SIGINT)
    out, err = script.communicate(timeout=60)
    assert "interrupted True\nended\n" in out, err
    assert script.returncode == 0
