"""What an agent does with the lease of a machine that was rented."""

import os
import time

import pytest
from pools import request, start, values

from skyward_nb.pool import registry


@pytest.fixture
def lease(tmp_path, monkeypatch):
    path = tmp_path / "lease"
    path.touch()
    os.utime(path, (1, 1))
    monkeypatch.setenv("SKYWARD_LEASE_FILE", str(path))
    return path


def test_a_client_renews_it(lease, make):
    pool = make(nodes=1)
    values(pool, "1")
    assert lease.stat().st_mtime > 1


@pytest.mark.extensive
def test_a_run_without_a_client_does_not(lease, no_leaks):
    """The agent does not wait for it either: its machine would stay for nothing."""
    pool = start(nodes=1, idle=11)  # longer than from one renewal to the next
    pool.begin(request(pool, "import time; time.sleep(60)", detached=True), lambda _: None)
    pool.leave()
    os.utime(lease, (1, 1))
    while registry.condition(pool.entry) is not None:
        time.sleep(0.2)
    assert lease.stat().st_mtime == 1


def test_one_that_cannot_be_renewed_hinders_nobody(lease, make):
    lease.unlink()
    assert values(make(nodes=1), "1") == [1]
