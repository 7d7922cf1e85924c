"""A notebook that sleeps while the lease of its machines runs out."""

from __future__ import annotations

import os
import signal

import pytest
from cloud.notebooks import rented

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cloud(shared_cloud, account):
    shared_cloud.reset()
    return shared_cloud


def test_a_laptop_sleeps_past_the_lease(cloud):
    """Its machines have ended by themselves; awake again, it says so, and can have others."""
    with rented(cloud, nodes=1) as book:
        book.options += " idle=3s"
        (was,) = book.values("socket.gethostname()", timeout=120)
        pid = book.kernel.manager.provisioner.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            for each in cloud.machines:
                each.cut()
            cloud.leases_run_out(90)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "machines" not in cloud.left()
        again = book.cell("socket.gethostname()", timeout=150)
        assert again.status == "error", again.picture
        (fresh,) = book.values("socket.gethostname()", timeout=150)
        assert fresh != was
