"""Ctrl-C while calls go on: the loop stops, whenever it comes, and nothing stays taken."""

import contextlib
import itertools
import os
import signal
import threading
import time
from concurrent.futures import CancelledError

import pytest
from functions.examples import nap, same
from waiting import until

import skyward_nb as sky
from skyward_nb.functions.concurrent_calls import ConcurrentCalls
from skyward_nb.functions.rank_streams import StreamRun
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.pool.interrupt_handlers import InterruptTaken
from skyward_nb.protocol.commands import Run
from skyward_nb.words.errors import StartError


@sky.function
def values(times):
    yield from range(times)


@sky.function
def fails():
    raise LookupError("here")


@sky.function
def fails_at_once():
    raise LookupError("here")
    yield


def test_an_interrupt_that_comes_once_a_call_has_begun_leaves_its_rank_free(pool, monkeypatch):
    assert same(1) >> pool == 1
    engine = pool._runner.pool
    begin = engine.begin

    def interrupted(*args):
        going = begin(*args)
        os.kill(os.getpid(), signal.SIGINT)
        return going

    monkeypatch.setattr(engine, "begin", interrupted)
    for call in (nap(20) >> pool.head for _ in [0]), sky.gather(nap(20), stream=True) >> pool:
        with pytest.raises(KeyboardInterrupt):
            next(call)
    monkeypatch.undo()
    assert (same(2) @ pool) == [2, 2]


LATE = {
    "call": lambda pool: same(1) >> pool,
    "on all": lambda pool: same(1) @ pool,
    "gather": lambda pool: sky.gather(same(1), same(2)) >> pool,
    "gather beside another": lambda pool: sky.gather(same(1), nap(0.5)) >> pool,
    "map": lambda pool: pool.map(abs, range(4)),
    "stream": lambda pool: [*values(2) >> pool.head],
    "left stream": lambda pool: next(iter(values(2) >> pool.head)),
    "call in the loop over a stream": lambda pool: [
        same(1) >> pool for _ in values(2) >> pool.head
    ],
}


def stopped_loop(call):
    """A signal that comes once more, after a stream was dropped, comes while this sleeps."""
    for _ in range(30):
        call()
        time.sleep(2)


def as_it_ends(pool, interrupt):
    driver = pool._runner.pool.driver
    conduct = driver.conduct

    def interrupted(runs, *rest):
        conduct(runs, *rest)
        if any(run.is_over for run in runs):
            interrupt()

    return driver, "conduct", interrupted


def as_it_begins(pool, interrupt):
    lines = pool._runner.pool.lines
    send = lines.send

    def interrupted(command):
        send(command)
        if isinstance(command, Run):
            interrupt()

    return lines, "send", interrupted


def as_ranks_are_claimed(pool, interrupt):
    slots = pool._runner.claims.slots
    claim = slots.claim

    def interrupted(*args, **options):
        taken = claim(*args, **options)
        interrupt()
        return taken

    return slots, "claim", interrupted


def as_ranks_are_released(pool, interrupt):
    slots = pool._runner.claims.slots
    release = slots.release

    def interrupted(ranks):
        interrupt()
        release(ranks)

    return slots, "release", interrupted


def as_its_run_is_removed(pool, interrupt):
    driver = pool._runner.pool.driver
    remove = driver.remove

    def interrupted(*args):
        interrupt()
        remove(*args)

    return driver, "remove", interrupted


def nothing_is_taken(pool):
    """Of ranks, runs and turns, by the main thread or another."""
    engine, claims = pool._runner.pool, pool._runner.claims
    lock, handler = engine.context.lock, signal.getsignal(signal.SIGINT)
    free = not (claims.slots._busy or claims.held or engine.context.state.runs or lock._held_by)
    is_told = not engine.driver.owes_interrupt
    return free and is_told and handler is signal.default_int_handler


@pytest.mark.parametrize(
    "moment",
    [
        as_ranks_are_claimed,
        as_it_begins,
        as_it_ends,
        as_its_run_is_removed,
        as_ranks_are_released,
    ],
)
@pytest.mark.parametrize("kind", LATE)
def test_an_interrupt_that_comes_between_the_moments_of_a_call_stops_a_loop_of_calls(
    pool, monkeypatch, kind, moment
):
    def interrupt():
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGINT)

    LATE[kind](pool)
    engine = pool._runner.pool
    generation = engine.context.state.generation
    monkeypatch.setattr(*moment(pool, interrupt))
    with pytest.raises(KeyboardInterrupt):
        stopped_loop(lambda: LATE[kind](pool))
    time.sleep(0.1)  # one that came twice would raise here
    assert nothing_is_taken(pool)
    assert same(2) @ pool == [2, 2]
    assert engine.context.state.generation == generation


@sky.function
def stays(path):
    path.touch()
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(60)


@sky.function
def heeds(path):
    path.touch()
    time.sleep(60)


@sky.function
def heeds_none(path):
    try:
        path.touch()
        time.sleep(60)
    except KeyboardInterrupt:
        return "saved"


def test_what_a_function_makes_of_an_interrupt_is_its_own_affair(pool, tmp_path):
    begun = tmp_path / "begun"

    def interrupt():
        until(begun.exists)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert heeds_none(begun) >> pool.head == "saved"
    assert same(2) @ pool == [2, 2]


def test_a_second_interrupt_while_calls_are_stopped_is_none_of_the_next_ones(pool, tmp_path):
    """It ends the ranks that do not stop."""
    marks = [tmp_path / "0", tmp_path / "1"]

    def interrupt():
        for mark in marks:
            until(mark.exists)
        os.kill(os.getpid(), signal.SIGINT)
        until(
            lambda: any(
                run.interrupts for run in tuple(pool._runner.pool.context.state.runs.values())
            )
        )
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        _ = sky.gather(*map(stays, marks)) >> pool
    assert same(2) @ pool == [2, 2]


def test_a_second_interrupt_ends_what_stays_though_another_call_has_heeded_the_first(
    pool, tmp_path
):
    marks, state = [tmp_path / "0", tmp_path / "1"], pool._runner.pool.context.state

    def interrupt():
        for mark in marks:
            until(mark.exists)
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: len(state.runs) == 1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _ = sky.gather(stays(marks[0]), heeds(marks[1])) >> pool
    assert time.monotonic() - began < pool._runner.pool.spec.grace, "it was not waited for"
    assert same(2) @ pool == [2, 2]


def test_an_interrupt_as_ranks_are_begun_anew_is_none_of_a_later_call(pool):
    came = []

    def watch(event):
        if not came:
            came.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pool._runner.pool.restart(watch)
    assert same(2) @ pool == [2, 2]


def test_what_failed_is_raised_where_an_interrupt_came_as_it_ended(pool, monkeypatch):
    driver = pool._runner.pool.driver
    conduct = driver.conduct

    def interrupted(runs, *rest):
        conduct(runs, *rest)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(driver, "conduct", interrupted)
    for call in (
        lambda: fails() >> pool,
        lambda: sky.gather(fails()) >> pool,
        lambda: [*fails_at_once() >> pool.head],
    ):
        with pytest.raises(LookupError):
            call()
    monkeypatch.undo()
    assert same(2) @ pool == [2, 2]


def test_an_interrupt_that_another_thread_reads_before_the_call_is_waited_for_stops_it(
    pool, monkeypatch
):
    """That thread listens for its own call meanwhile."""
    beside = nap(60) > pool
    driver = pool._runner.pool.driver
    conduct, state = driver.conduct, pool._runner.pool.context.state

    def interrupted_before(runs, *rest):
        if threading.current_thread() is threading.main_thread():
            monkeypatch.undo()
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: state.is_interrupt_untaken)
        conduct(runs, *rest)

    monkeypatch.setattr(driver, "conduct", interrupted_before)
    with pytest.raises(KeyboardInterrupt):
        _ = nap(60) >> pool
    assert not beside.done()
    beside.cancel()
    with pytest.raises(CancelledError):
        beside.result()


def test_an_interrupt_stops_what_waits_for_a_rank(pool):
    beside = [nap(60) > pool for _ in range(2)]
    state = pool._runner.pool.context.state
    until(lambda: len(state.runs) == 2)

    def interrupt():
        until(lambda: pool._runner.claims.slots._queue)
        os.kill(os.getpid(), signal.SIGINT)

    for call in LATE.values():
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            call(pool)
        assert not pool._runner.claims.slots._queue
    assert len(state.runs) == 2, "theirs go on"
    for each in beside:
        each.cancel()
        with pytest.raises(CancelledError):
            each.result()


def looked_shortly(driver):
    driver.look_shortly(lambda _: None, 0)


def had_a_turn(driver):
    with driver.turn():
        """Between two calls."""


@pytest.mark.parametrize("use", [looked_shortly, had_a_turn])
@pytest.mark.parametrize("moment", ["take_turn", "pass_on"])
def test_an_interrupt_as_the_turn_is_taken_or_passed_on_leaves_it_to_others(
    pool, monkeypatch, use, moment
):
    engine = pool._runner.pool
    lock = engine.context.lock
    acts = getattr(lock, moment)

    def interrupted(*args):
        if moment == "pass_on":
            signal.raise_signal(signal.SIGINT)
            return acts()
        taken = acts(*args)
        signal.raise_signal(signal.SIGINT)
        return taken

    monkeypatch.setattr(lock, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        use(engine.driver)
    assert nothing_is_taken(pool)


@sky.function
def swallows_one(mark):
    yield 0
    with contextlib.suppress(KeyboardInterrupt):
        mark.touch()
        time.sleep(60)
    yield 1


def test_what_a_generator_makes_of_an_interrupt_is_none_of_the_calls_in_the_loop_over_it(
    pool, tmp_path
):
    mark, waits_for_more = tmp_path / "begun", threading.Event()

    def interrupt():
        until(lambda: mark.exists() and waits_for_more.is_set())
        until(lambda: isinstance(signal.getsignal(signal.SIGINT), InterruptTaken))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    found = []
    for number in swallows_one(mark) >> pool.head:
        if number:  # it has taken it by now
            found.append(same(number) >> pool)
        waits_for_more.set()
    assert found == [1]
    assert same(2) @ pool == [2, 2]


def test_an_interrupt_as_ranks_are_readied_in_vain_is_not_lost(pool, monkeypatch):
    engine, readiness = pool._runner.pool, pool._runner.readiness

    def interrupted(*_):
        with engine.lines.interrupts():
            os.kill(os.getpid(), signal.SIGINT)
        raise StartError("p", "it did not come up")

    monkeypatch.setattr(engine, "become", interrupted)
    with pytest.raises(KeyboardInterrupt):
        readiness.add(FrameworkChoice(("jax",), "a test"))
    assert readiness._refused == {"jax"}
    readiness._refused.clear()
    assert nothing_is_taken(pool)


@sky.function
def yields_once(mark):
    yield 0
    mark.touch()
    time.sleep(60)


def test_a_stream_that_was_interrupted_beside_a_call_hides_no_later_interrupt(
    pool, monkeypatch, tmp_path
):
    """It is over, but nobody reads on."""
    mark, state = tmp_path / "begun", pool._runner.pool.context.state
    stream = yields_once(mark) >> pool.head
    assert next(stream) == 0

    def interrupt():
        until(mark.exists)
        until(lambda: [run.is_in_front for run in tuple(state.runs.values())] == [True, True])
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        _ = nap(60) >> pool
    monkeypatch.setattr(*as_it_ends(pool, lambda: os.kill(os.getpid(), signal.SIGINT)))
    with pytest.raises(KeyboardInterrupt):
        stopped_loop(lambda: same(1) >> pool)
    monkeypatch.undo()
    del stream
    time.sleep(0.2)  # one that came twice would raise here
    assert nothing_is_taken(pool)


@pytest.mark.parametrize("kind", ["gather", "map"])
def test_an_interrupt_as_many_calls_are_over_stops_the_loop(pool, monkeypatch, kind):
    stop = ConcurrentCalls.stop

    def interrupted(crowd):
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        stop(crowd)

    monkeypatch.setattr(ConcurrentCalls, "stop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stopped_loop(lambda: LATE[kind](pool))
    assert nothing_is_taken(pool)


def test_an_interrupt_while_a_stream_is_closed_closes_it(pool, monkeypatch, tmp_path):
    stream = yields_once(tmp_path / "begun") >> pool.head
    assert next(stream) == 0

    def interrupted(*_, **what):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StreamRun, "resume", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.close()
    assert nothing_is_taken(pool)


def test_an_interrupt_while_a_gather_is_dropped_kills_no_ranks(pool, tmp_path):
    """They are stopped already: it is no second one."""
    mark, state = tmp_path / "begun", pool._runner.pool.context.state
    generation = state.generation
    gathered = sky.gather(same(1), stays_once(mark), stream=True) >> pool
    assert next(gathered) == 1
    until(mark.exists)

    def interrupt():
        until(lambda: any(run.interrupts for run in tuple(state.runs.values())))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        gathered.close()
        time.sleep(5)
    assert nothing_is_taken(pool) and state.generation == generation


@sky.function
def stays_once(mark):
    with contextlib.suppress(KeyboardInterrupt):
        mark.touch()
        time.sleep(60)
    time.sleep(1)


@sky.function
def first_of(values):
    yield next(values)
    for _ in values:
        """It asks for more and more."""


def test_an_interrupt_reaches_a_generator_that_is_waited_for_as_a_stream_is_dropped(pool):
    dropped, waits = threading.Event(), threading.Event()

    def source():
        for number in itertools.count():
            if dropped.is_set():
                waits.set()
                time.sleep(60)
            yield number

    def interrupt():
        until(waits.is_set)
        os.kill(os.getpid(), signal.SIGINT)

    stream = first_of(source()) >> pool.head
    assert next(stream) == 0
    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dropped.set()
        del stream
        time.sleep(30)
    assert time.monotonic() - began < 30
    assert nothing_is_taken(pool)


@sky.function
def interrupts_itself():
    yield 0
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_dropped", [True, False])
def test_an_interrupt_of_the_ranks_own_is_none_of_the_persons(pool, is_dropped):
    stream = interrupts_itself() >> pool.head
    assert next(stream) == 0
    assert same(1) >> pool.head == 1, "the generator has come to its end meanwhile"
    if not is_dropped:
        stream.close()
    del stream
    time.sleep(0.1)  # it would raise here
    assert nothing_is_taken(pool)
