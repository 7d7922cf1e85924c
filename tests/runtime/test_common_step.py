"""At which step ranks of a training stop, and that they stop there together."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from skyward_nb.runtime.common_step import CommonStep, StepReport, decide


@pytest.mark.parametrize(
    ("reports", "last"),
    [
        ([(0,), (0,)], None),
        ([(0, 0.01, 0.02), (0, 0.01, 0.02)], 1),
        ([(0, 0.5, 0.02), (0, 0.5, 0.02)], None),
        ([(7, 0.01, 0.02), (7, 0.01, 0.02)], 8),
        ([(7, 0.01, 0.02), (6, 0.03, 0.02)], 8),
        ([(0,), (1, 0.01)], 2),
        ([(7, 9.0, 0.02), (7, 9.0, 0.02)], None),
        ([(7, 9.0, 0.02), (8, 9.0, 0.02)], 9),
        ([(7, 0.1, 3.0), (7, 0.1, 3.0)], None),
        ([(7, 0.1, 3.0), (8, 0.1, 3.0)], 8),
    ],
    ids=["none trains", "trained before", "does not train now", "together", "one behind", "first step", "over", "over, not together", "slow", "slow, one behind"],
)  # fmt: skip
def test_the_last_step_of_all(reports, last):
    assert decide([StepReport(*each) for each in reports], 1.5) == last


class Meeting:
    """Ranks that are threads of a test meet here."""

    def __init__(self, ranks, late=()):
        self.ranks, self.late = ranks, late
        self.told, self.came = {}, threading.Condition()

    def of(self, rank):
        def exchange(key, own, seconds):
            with self.came:
                if rank not in self.late:
                    self.told[rank] = own
                    self.came.notify_all()
                whole = self.came.wait_for(lambda: len(self.told) == self.ranks, seconds)
            return [self.told[each] for each in range(self.ranks)] if whole else None

        return exchange


class Training:
    """Ranks as threads that go through steps together, as by collectives, until they are stopped."""

    def __init__(self, ranks, late=(), steps=1_000_000):
        self.meeting, self.late, self.steps = Meeting(ranks, late), late, steps
        self.commons = [CommonStep() for _ in range(ranks)]
        self.backward = threading.Barrier(ranks)
        self.watched = [threading.Event() for _ in range(ranks)]
        self.threads = [
            threading.Thread(target=self.train, args=(n,), daemon=True) for n in range(ranks)
        ]
        self.done, self.stopped = [0] * ranks, [False] * ranks
        for thread in self.threads:
            thread.start()

    def train(self, rank):
        common, watched = self.commons[rank], self.watched[rank]
        common.connect(self.meeting.of(rank), lambda on: watched.set() if on else watched.clear())
        common.begin(1)
        try:
            while self.done[rank] < self.steps:
                if watched.is_set():
                    common.backward_begins()
                self.backward.wait(60)
                self.step(common)
                self.done[rank] += 1
        except (KeyboardInterrupt, threading.BrokenBarrierError):
            self.stopped[rank] = True
        common.end()

    def step(self, common):
        """As an optimizer calls its hooks."""

        def hook():
            common.step_begins()

        hook()
        common.step_ended()

    def interrupt(self, rank, patience=60.0):
        common = self.commons[rank]

        def again():
            if not common.defers(1, again):
                raise KeyboardInterrupt

        assert common.defers(1, again) or rank in self.late
        common.interrupted(1, patience, self.backward.abort)

    def join(self):
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads)


@pytest.fixture
def slow_clock(monkeypatch):
    """A process that is stopped between two lines does not seem to be one that trains no more."""
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() / 1000, sleep=time.sleep, time_ns=time.time_ns
    )
    monkeypatch.setattr("skyward_nb.runtime.common_step.time", clock)


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("pause", [0, 0.003])
def test_interrupts_at_different_moments_stop_all_after_the_same_step(pause):
    training = Training(3)
    while min(training.done) < 5:
        pass
    for rank in range(3):
        training.interrupt(rank)
        threading.Event().wait(pause)
    training.join()
    assert training.stopped == [True] * 3
    assert len({*training.done}) == 1, training.done
    assert [each.ended for each in training.commons] == training.done


def test_where_one_does_not_answer_the_others_are_released():
    training = Training(2, late=(1,))
    while min(training.done) < 5:
        pass
    training.interrupt(0, patience=0.2)
    training.join()
    assert training.stopped == [True, True]
    assert not any(each.is_agreeing(1) for each in training.commons)


def test_what_is_agreed_on_once_a_run_is_over_is_not_of_the_next_one():
    common, agreed, woken = CommonStep(), threading.Event(), threading.Event()
    helpers = set(threading.enumerate())

    def exchange(key, own, seconds):
        agreed.wait(60)
        return [own, own]

    common.connect(exchange)
    common.begin(1)
    for _ in range(3):
        common.step_begins()
        common.step_ended()
    common.interrupted(1, 60.0, lambda: None)
    common.end()
    common.begin(2)
    (helper,) = set(threading.enumerate()) - helpers
    agreed.set()
    helper.join(60)
    assert not common.is_agreeing(2)
    common.interrupted(2, 0.1, woken.set)
    assert woken.wait(60), "the next interrupt is heard"
    common.end()


def test_an_interrupt_that_came_before_its_run_is_of_it():
    common, woken = CommonStep(), threading.Event()
    common.connect(Meeting(1).of(0))
    common.interrupted(4, 1.0, woken.set)
    assert not woken.is_set()
    common.begin(4)
    assert woken.wait(60), "nobody trains: at once"
    assert not common.defers(4, lambda: None)
    common.end()


def test_a_step_that_has_begun_is_made_whole():
    common = CommonStep()
    common.begin(2)
    raised = []

    def optimizer_step():
        def hook():
            common.step_begins()

        hook()
        common.interrupted(2, 0, lambda: None)
        assert common.defers(2, lambda: raised.append(common.ended))
        assert not raised
        common.step_ended()

    optimizer_step()
    assert raised == [1]
    assert not common.defers(2, lambda: None)
    common.end()


def test_a_step_that_does_not_end_is_torn(monkeypatch):
    monkeypatch.setattr("skyward_nb.runtime.common_step._LOOKS", 2)
    seen = threading.Event()
    # No look before this thread has had its turn.
    clock = SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda _: seen.wait(60), time_ns=time.time_ns
    )
    monkeypatch.setattr("skyward_nb.runtime.common_step.time", clock)
    common = CommonStep()
    common.begin(2)

    def optimizer_step():
        def hook():
            common.step_begins()

        hook()
        common.interrupted(2, 0, lambda: None)
        assert common.defers(2, lambda: None)
        seen.set()
        while common.defers(2, lambda: None):
            time.sleep(0.01)

    optimizer_step()
    assert common.is_torn
    common.step_begins()
    common.step_ended()
    common.end()
    assert common.is_torn, "also where the code goes on"
    common.begin(3)
    assert not common.is_torn
    common.end()


def test_steps_that_were_called_after_a_collective_that_never_ended():
    """As on a GPU, which makes them later than they are called."""
    common = CommonStep()
    common.begin(1)

    def step(own):
        common.step_begins()
        common.step_ended()
        return own

    step(1)
    assert common.partial_steps == 0
    called_at = time.time_ns()
    common.cut_since(called_at + 10**12)
    assert common.partial_steps == 0
    common.cut_since(called_at)
    step(2)
    assert (common.ended, common.partial_steps) == (2, 1)
    common.begin(2)
    assert (common.ended, common.partial_steps) == (0, 0)
    common.end()
    common.cut_since(time.time_ns())
    common.begin(3)
    step(3)
    assert common.partial_steps == 0, "what was cut before this run is none of its steps"
