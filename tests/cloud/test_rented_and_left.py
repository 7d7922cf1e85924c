"""Machines that a notebook rented and leaves: its kernel ends, or is killed."""

from __future__ import annotations

import re

import pytest
from cloud.notebooks import rented
from kernels import kernel

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cloud(shared_cloud, account):
    shared_cloud.reset()
    return shared_cloud


def test_a_kernel_that_ends_takes_its_machines_with_it(cloud):
    with kernel() as running:
        running.run("import sys, skyward_nb as sky\nhere = sky.Image(interpreter=sys.executable)")
        line = "provider=aws region=us-east-1 instance_type=c6i.large image=here yes"
        ran = running.run(f"%%sky_remote {line}\n1", 120)
        assert ran.status == "ok", ran.traceback
    cloud.nothing_left()


def test_a_kernel_that_is_killed_finds_its_machines_again(cloud):
    with rented(cloud, nodes=1) as book:
        book.options += " idle=10m"
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
