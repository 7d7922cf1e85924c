"""Ranks as an executor for others, and as a backend of joblib: where jobs run, what fails, what stays."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import as_completed, wait

import pytest
from leaks import leaves_nothing
from waiting import until

import skyward_nb as sky
from skyward_nb.words.errors import PayloadError


@pytest.fixture(scope="module")
def pool():
    with leaves_nothing(), sky.Compute(nodes=2, quiet=True) as pool:
        yield pool


def square(x, *, plus=0):
    return x * x + plus


def pid(_):
    return os.getpid()


def rest():
    import time

    time.sleep(1000)


def fail(x):
    raise ValueError(f"no {x}")


def test_calls_run_on_ranks_in_any_way_an_executor_is_used(pool):
    with pool.executor() as executor:
        assert executor.submit(square, 3, plus=1).result() == 10
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]
        futures = [executor.submit(pid, n) for n in range(6)]
        assert {each.result() for each in as_completed(futures)} <= {*(sky.function(pid)(0) @ pool)}
        assert os.getpid() not in {each.result() for each in wait(futures).done}

        async def several():
            loop = asyncio.get_running_loop()
            return await asyncio.gather(
                *(loop.run_in_executor(executor, square, n) for n in (2, 3))
            )

        assert asyncio.run(several()) == [4, 9]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(square, 1)
    # The pool stays.
    assert sky.function(square)(4) >> pool == 16


def test_what_a_call_raises_and_what_cannot_travel(pool):
    executor = pool.node(1).executor()
    assert isinstance(executor.submit(fail, 3).exception(), ValueError)
    with pytest.raises(PayloadError, match="lock"):
        executor.submit(square, __import__("threading").Lock())
    assert executor.submit(square, 5).result() == 25


def test_a_shutdown_may_stop_what_goes_on(pool, tmp_path):
    executor, there = pool.executor(), tmp_path / "there"

    def waits():
        import time

        there.touch()
        time.sleep(1000)

    future = executor.submit(waits)
    until(there.exists)
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()


def test_an_interrupt_at_the_end_of_its_block_stops_all(pool, monkeypatch):
    executor = pool.executor()
    futures = [executor.submit(rest) for _ in range(4)]
    waits = type(futures[0])._wait_for_it

    def interrupted(*_):
        monkeypatch.setattr(type(futures[0]), "_wait_for_it", waits)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(futures[0]), "_wait_for_it", interrupted)
    with pytest.raises(KeyboardInterrupt):
        executor.shutdown()
    assert until(lambda: all(each.cancelled() for each in futures))


@pytest.mark.extensive
def test_joblibs_jobs_run_on_ranks_within_the_block():
    joblib = pytest.importorskip("joblib")
    with leaves_nothing(), sky.Compute(nodes=2, quiet=True, plugins=[sky.plugins.joblib]) as pool:
        ranks = {*(sky.function(pid)(0) @ pool)}
        found = joblib.Parallel(n_jobs=-1)(joblib.delayed(pid)(n) for n in range(200))
        assert {*found} == ranks
        for _ in range(2):
            with pytest.raises(ValueError, match="no 3"):
                joblib.Parallel(n_jobs=2)(joblib.delayed(fail)(n) for n in (3, 3))
        squares = joblib.Parallel(n_jobs=2)(joblib.delayed(square)(n, plus=1) for n in range(50))
        assert squares == [n * n + 1 for n in range(50)]
        assert joblib.effective_n_jobs(-1) == 2
        with pytest.raises(ValueError, match="no meaning"):
            joblib.Parallel(n_jobs=0)([])
    assert joblib.Parallel(n_jobs=1)([joblib.delayed(pid)(0)]) == [os.getpid()]


@pytest.mark.extensive
def test_joblibs_jobs_run_on_ranks_within_an_async_block():
    joblib = pytest.importorskip("joblib")

    async def main():
        async with sky.Compute(nodes=2, quiet=True, plugins=[sky.plugins.joblib()]) as pool:
            ranks = {*(await (sky.function(pid)(0) @ pool))}
            assert {*joblib.Parallel(n_jobs=2)(joblib.delayed(pid)(n) for n in range(9))} <= ranks
        assert joblib.Parallel(n_jobs=1)([joblib.delayed(pid)(0)]) == [os.getpid()]

    with leaves_nothing():
        asyncio.run(main())


@pytest.mark.extensive
def test_a_search_of_scikit_learn_is_the_same_on_ranks():
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    x, y = load_iris(return_X_y=True)
    grid = {"max_depth": [1, 2, 3]}
    here = GridSearchCV(DecisionTreeClassifier(random_state=0), grid, cv=3).fit(x, y)
    with leaves_nothing(), sky.Compute(nodes=2, quiet=True, plugins=[sky.plugins.sklearn()]):
        there = GridSearchCV(DecisionTreeClassifier(random_state=0), grid, cv=3, n_jobs=-1).fit(
            x, y
        )
    assert there.best_params_ == here.best_params_
    name = "mean_test_score"
    assert there.cv_results_[name].tolist() == here.cv_results_[name].tolist()
