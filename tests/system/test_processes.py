"""Which threads of a process compute."""

import threading

from waiting import until

from skyward_nb.system.processes import computing_threads


def test_a_thread_that_computes_is_told_from_one_that_waits():
    over = threading.Event()
    ids: dict[str, int] = {}

    def computes():
        ids["computes"] = threading.get_native_id()
        while not over.is_set():
            sum(range(10_000))

    def waits():
        ids["waits"] = threading.get_native_id()
        over.wait()

    threads = [threading.Thread(target=each) for each in (computes, waits)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(ids) == 2)
        seen: set[int] = set()

        def is_seen():
            seen.update(computing_threads())
            return ids["computes"] in seen

        until(is_seen)
        assert threading.get_native_id() not in seen
    finally:
        over.set()
        for thread in threads:
            thread.join()
    until(lambda: not computing_threads() & set(ids.values()))
