"""Machines that a notebook rented and leaves: its kernel ends, or is killed."""

from __future__ import annotations

import re

import pytest
from cloud.notebooks import OPTIONS, START
from cluster.notebooks import Notebook
from kernels import kernel
from leaks import leaves_nothing

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cloud(shared_cloud, account):
    shared_cloud.reset()
    return shared_cloud


def test_a_kernel_that_is_killed_finds_its_machines_again_and_ends_them_with_itself(cloud):
    with leaves_nothing(), kernel() as running:
        assert running.run(START).status == "ok"
        book = Notebook(running, options=f"{OPTIONS} nodes=1 idle=10m")
        book.well("kept = 5", timeout=120)
        words = book.kernel.restart(by_kill=True)
        line = re.search(r"%sky attach pool=\S+", words)
        assert line, words
        # Another of the same name is no reason to take one for the other.
        assert book.kernel.run("%sky up").status == "ok"
        assert re.search(r"^default-\w+: \$", book.here("%sky cost"), re.MULTILINE)
        assert "there is no pool 'nobody'" in book.kernel.run("%sky cost pool=nobody").traceback
        assert book.kernel.run("%sky down").status == "ok"
        ran = book.kernel.run(line[0], 90)
        assert ran.status == "ok", ran.traceback
        ran = book.kernel.run("%%sky_remote\nkept", 60)
        assert ran.result == "[0] 5", ran.traceback
        assert cloud.actions().count("RunInstances") == 1
    cloud.nothing_left()
