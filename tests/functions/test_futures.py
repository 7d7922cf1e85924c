"""Threads that do what is given to them: as much at once as there are threads."""

import threading

from skyward_nb.functions.futures import PoolFuture, Workers


def test_what_waits_for_one_another_is_done_at_once():
    workers = Workers(2, "test")
    for _ in range(300):
        meet = threading.Barrier(2)
        both = [PoolFuture(lambda: None) for _ in range(2)]
        for future in both:
            workers.submit(future, lambda _, meet=meet: meet.wait(20))
        assert sorted(future.result() for future in both) == [0, 1]
    workers.close()
