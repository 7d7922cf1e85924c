"""`sky.progress` and `sky.log` tell the pool, and are silent without one."""

import threading
import time

import pytest
from waiting import until

import skyward_nb as sky
from skyward_nb.protocol.events import Metric
from skyward_nb.protocol.frames import event_frames, frame
from skyward_nb.runtime import event_sink, progress


@pytest.fixture
def heard():
    events = []
    event_sink.connect(events.append)
    yield events
    event_sink.connect(None)


def test_a_loop_tells_its_beginning_and_its_end(heard):
    assert list(sky.progress("abc", desc="letters")) == ["a", "b", "c"]
    assert (heard[0].done, heard[0].total, heard[0].text) == (0, 3, "letters")
    assert heard[-1].done == 3


def test_many_items_make_few_events(heard):
    began = time.perf_counter()
    for _ in sky.progress(range(100_000)):
        pass
    # One each period, however slow the machine is.
    assert len(heard) < 30 + (time.perf_counter() - began) / progress._PERIOD
    assert heard[-1].done == 100_000


def test_a_loop_that_stalls_after_quick_steps_is_shown_as_far_as_it_came(heard):
    loop = sky.progress(range(10))
    for _ in range(4):
        next(loop)
    until(lambda: heard[-1].done == 3)
    assert not heard[-1].over
    list(loop)
    assert (heard[-1].done, heard[-1].over) == (10, True)


def test_a_fast_loop_tells_its_end_last(heard):
    for _ in range(200):
        list(sky.progress(range(5)))
    assert {event.bar: event.over for event in heard} == dict.fromkeys(
        {event.bar for event in heard}, True
    )


def test_a_loop_left_early_tells_how_far_it_came(heard):
    for item in sky.progress(range(10)):
        if item == 4:
            break
    assert heard[-1].done == 4


def test_a_generator_has_no_total(heard):
    list(sky.progress(i for i in range(3)))
    assert heard[-1].total is None
    list(sky.progress((i for i in range(3)), total=3))
    assert heard[-1].total == 3


def test_metrics_are_numbers(heard):
    sky.log(loss=1, accuracy="0.5", step=7)
    assert heard == [Metric(0, 7, {"loss": 1.0, "accuracy": 0.5})]
    with pytest.raises(TypeError, match=r"sky\.log\(loss=\.\.\.\): a list is not one number"):
        sky.log(loss=[1, 2])


@pytest.mark.parametrize("total", [10**30, float("nan"), float("inf"), 10**400])
def test_a_total_that_counts_nothing_is_not_known_and_travels(heard, total):
    list(sky.progress(iter("ab"), total=total))
    assert [frame(event) for event in heard]
    assert heard[-1].total in (None, 1e30)


@pytest.mark.parametrize("desc", [None, 5, "\ud800", "two\nlines", "x" * 1000])
def test_any_description_travels_as_one_short_line(heard, desc):
    list(sky.progress("ab", desc=desc))
    (event,) = event_frames().feed(frame(heard[-1]))
    assert len(event.text) <= 200
    assert "\n" not in event.text


def test_a_total_that_is_no_number_is_told_where_it_is_given(heard):
    with pytest.raises(TypeError, match=r"sky\.progress\(total=\.\.\.\): a list is not a number"):
        list(sky.progress("ab", total=[]))
    assert not heard


@pytest.mark.parametrize("step", [10**30, -(10**30), "x", float("nan"), float("inf")])
def test_a_step_that_cannot_travel_is_told_where_it_is_given(heard, step):
    with pytest.raises((TypeError, ValueError), match=r"sky\.log\(step="):
        sky.log(loss=1, step=step)
    assert not heard


def test_names_of_metrics_are_one_short_line(heard):
    sky.log(**{"\ud800": 1, "a\nb": 2, "x" * 1000: 3})
    (event,) = event_frames().feed(frame(heard[-1]))
    assert list(event.values) == ["\\ud800", "a b", "x" * 199 + "…"]


def test_a_value_beyond_floats_names_its_metric(heard):
    with pytest.raises(TypeError, match=r"sky\.log\(loss="):
        sky.log(loss=10**400)


def test_loops_of_several_threads_stand_side_by_side_and_those_within_them_below(heard):
    both = threading.Barrier(2)

    def work(name):
        for _ in sky.progress("a", desc=name):
            both.wait(60)
            list(sky.progress("b", desc=f"in {name}"))
            both.wait(60)

    threads = [threading.Thread(target=work, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    levels = {event.text: event.level for event in heard}
    assert levels == {"x": 0, "y": 0, "in x": 1, "in y": 1}


class Walked(dict):
    """Counts how often all its keys are gone through."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()

    def items(self):
        self.times += 1
        return super().items()


@pytest.fixture
def runs(monkeypatch):
    """Begins runs; nothing was logged before."""
    monkeypatch.setattr(progress, "_logged", Walked())
    yield event_sink.begin
    event_sink.begin(0)


def test_names_that_are_always_new_cost_no_more_each_time(heard, runs):
    for run in range(1, 10):
        runs(run)
        sky.log(loss=1)
    for name in range(100):
        sky.log(**{f"m{name}": 1})
    assert progress._logged.times <= 1
    runs(10)
    sky.log(m1=1)
    assert heard[-1].step == 0


def test_each_run_counts_its_steps_anew_and_old_ones_are_forgotten(heard, runs):
    for run in range(1, 30):
        runs(run)
        sky.log(loss=1)
        sky.log(loss=1)
        assert [each.step for each in heard[-2:]] == [0, 1]
    assert len(progress._logged) == progress._MOST_RUNS


def test_a_thread_of_an_earlier_run_that_logs_beside_it_disturbs_no_count(heard, runs):
    turns = threading.Barrier(2, timeout=60)

    def monitors():
        for _ in range(20):
            turns.wait()
            sky.log(load=1)
            turns.wait()

    for run in range(1, 3):
        runs(run)
        if run == 1:
            thread = threading.Thread(target=monitors)
            thread.start()
        for _ in range(10):
            turns.wait()
            turns.wait()
            sky.log(loss=1)
    thread.join()
    told = {name: [each.step for each in heard if name in each.values] for name in ("load", "loss")}
    assert told == {"load": [*range(20)], "loss": [*range(10)] * 2}


def test_silent_without_a_pool(capsys):
    assert list(sky.progress([1])) == [1]
    sky.log(loss=1)
    assert capsys.readouterr() == ("", "")


@pytest.mark.torch
def test_a_tensor_with_a_gradient_is_a_number_without_a_warning(heard):
    torch = pytest.importorskip("torch")
    sky.log(loss=torch.ones(1, requires_grad=True) * 2)
    assert heard[0].values == {"loss": 2.0}
    with pytest.raises(TypeError, match="not one number"):
        sky.log(loss=torch.ones(3))


def test_a_loop_within_a_loop_is_one_level_higher(heard):
    for _ in sky.progress("ab", desc="outer"):
        for _ in sky.progress("cd", desc="inner"):
            pass
    assert {(event.text, event.level) for event in heard} == {("outer", 0), ("inner", 1)}
    assert [event.text for event in heard if event.over] == ["inner", "inner", "outer"]


def test_a_loop_that_was_left_open_by_an_earlier_run_holds_no_level(heard):
    left = sky.progress("ab", desc="left")
    next(left)
    event_sink.begin(2)
    list(sky.progress("ab", desc="next"))
    assert heard[-1].level == 0
    assert heard[-1].run == 2
    left.close()
    assert (heard[-1].text, heard[-1].run) == ("left", 0)
    event_sink.begin(0)
