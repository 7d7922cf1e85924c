"""Threads that do what is given to them: as much at once as there are threads."""

import concurrent.futures
import threading

import pytest

from skyward_nb.functions.futures import PoolFuture, Workers, joined
from skyward_nb.words.errors import OptionError


def test_what_waits_for_one_another_is_done_at_once():
    workers = Workers(2, "test")
    for _ in range(300):
        meet = threading.Barrier(2)
        both = [PoolFuture(lambda: None) for _ in range(2)]
        for future in both:
            workers.submit(future, lambda _, meet=meet: meet.wait(60))
        assert sorted(future.result() for future in both) == [0, 1]
    workers.close()


def test_what_is_given_to_threads_that_have_ended_is_cancelled():
    workers = Workers(1, "test")
    earlier, later = (PoolFuture(lambda: None) for _ in range(2))
    workers.submit(earlier, lambda _: 1)
    assert earlier.result(60) == 1
    workers.close()
    workers.submit(later, lambda _: 2)
    assert concurrent.futures.wait([later], 60).done == {later}
    with pytest.raises(concurrent.futures.CancelledError):
        later.result(60)


@pytest.mark.parametrize("timeout", [0, 0.001, "0.001s", "0.001"])
def test_how_long_a_result_is_waited_for_is_a_number_or_a_text(timeout):
    future = PoolFuture(lambda: None)
    with pytest.raises(TimeoutError):
        future.result(timeout=timeout)
    with pytest.raises(OptionError, match="timeout=soon: give a time such as 90s"):
        future.exception("soon")


def test_what_is_waited_for_together_may_be_cancelled_by_who_hears_of_it():
    parts = [PoolFuture(lambda: None) for _ in range(2)]
    drawn = []
    whole = joined(parts, lambda: drawn.append(1))
    whole.add_done_callback(lambda it: it.cancel())
    parts[0].set_running_or_notify_cancel()
    parts[0].set_exception(ValueError("the first"))
    assert parts[1].cancelled()
    with pytest.raises(ValueError, match="the first"):
        whole.result(60)
    waiting = joined([PoolFuture(lambda: None)], lambda: drawn.append(2))
    with pytest.raises(TimeoutError):
        waiting.result(0.001)
    assert drawn[-1] == 2, "what its calls show is drawn meanwhile"
