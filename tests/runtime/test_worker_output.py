"""Output of torchrun's workers: lines in one piece, also where a worker is ended within one."""

import os

import pytest
from later import needs

pytestmark = [pytest.mark.torch, needs("torch")]


def test_a_line_that_was_left_in_its_middle_is_not_gone_on_with_by_another_worker(tmp_path):
    from skyward_nb.runtime.worker_output import WorkerOutput

    here, there = os.pipe()
    output = WorkerOutput(tmp_path)
    for text in (b"epoch", b"epoch 2\n", b"50%", b"\r60%\n"):
        worker = os.open(output.pipe(there), os.O_WRONLY)
        os.write(worker, text)
        os.close(worker)
        while output._parts:  # until it has read the end
            os.sched_yield()
    output.close()
    os.close(there)
    with open(here, "rb") as told:
        assert told.read() == b"epoch\nepoch 2\n50%\r60%\n"
