"""Workers of torchrun that failed, in words."""

import pickle

from skyward_nb.words.worker_failures import FailedWorker, WorkersFailed


def test_those_that_failed_alike_are_one_line():
    boom = [FailedWorker(rank, 0, 1, "ValueError: boom", "Traceback\nboom") for rank in (2, 3)]
    error = WorkersFailed((*boom, FailedWorker(1, 1, -9), FailedWorker(0, 0, 3)))
    assert str(error).splitlines() == [
        "workers 2-3: ValueError: boom",
        "worker 1: killed by SIGKILL",
        "worker 0: exited with code 3",
        "Traceback",
        "boom",
    ]
    again = pickle.loads(pickle.dumps(error))
    assert (again.workers, str(again)) == (error.workers, str(error))
    assert FailedWorker(0, 0, -99).how == "killed by signal 99"
