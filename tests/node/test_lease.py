"""What an agent does with the lease of a machine that was rented."""

import os

import pytest
from pools import values


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


def test_one_that_cannot_be_renewed_hinders_nobody(lease, make):
    lease.unlink()
    assert values(make(nodes=1), "1") == [1]
