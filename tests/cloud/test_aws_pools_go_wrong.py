"""Pools on machines that are rented, as their boot, their credentials or who waits for them give up: nothing is left."""

from __future__ import annotations

import warnings

import pytest
from cloud.offered import started, swept
from cloud.presses import interrupts_at
from pools import values
from tiers import few
from waiting import until

from skyward_nb.providers.aws import boot, launch, provisioning, rental_records
from skyward_nb.words.errors import AccountError, HostError, StartError
from skyward_nb.words.provider_access import AWSAccess

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("looked_again_after", few(1, [0.1, 5.0]))
def test_a_boot_that_fails_leaves_nothing(offered, monkeypatch, looked_again_after):
    """Whether it is seen to run before that or not."""
    monkeypatch.setattr(launch, "_PAUSE", looked_again_after)
    monkeypatch.setattr(boot, "_LOOK", 1.0)
    with pytest.raises(StartError, match="ended before it could be logged in to"):
        started(aws=AWSAccess(region="us-east-1", user="nobody-here"))
    offered.nothing_left()
    assert rental_records.entries() == []


def test_a_machine_that_never_answers_is_given_up(offered, monkeypatch):
    monkeypatch.setattr(boot, "_LIMIT", 1.0)
    offered.dead()
    with pytest.raises(HostError):
        started(nodes=2)
    offered.nothing_left()


def test_a_machine_that_shows_another_host_key_is_not_logged_in_to(offered, monkeypatch):
    """As one that somebody puts in between would."""
    log_in, logs = boot.log_in, []

    async def swapped(*args):
        (machine,) = offered.booted(1)
        key = "/etc/ssh/ssh_host_ed25519_key"
        machine.sh(f"rm {key}; ssh-keygen -q -t ed25519 -N '' -f {key}; systemctl restart ssh")
        try:
            return await log_in(*args)
        finally:
            logs.append(machine.file("/var/log/sshd.log").read_text())

    monkeypatch.setattr(boot, "_LIMIT", 1.0)
    monkeypatch.setattr(boot, "log_in", swapped)
    with pytest.raises(HostError, match="host key"):
        started()
    assert "Accepted" not in logs[0] and "Connection" in logs[0]
    assert rental_records.entries() == [] and offered.left() == {}
    offered.nothing_left()


@pytest.mark.extensive
def test_credentials_that_are_over_are_no_end_of_a_boot_and_end_machines_all_the_same(
    offered, monkeypatch
):
    """Who can log in needs nothing of AWS: it is looked again whether they run."""
    monkeypatch.setattr(boot, "_LOOK", 0.0)
    log_in = boot.log_in

    async def refused(*args):
        offered.fail("DescribeInstances", "ExpiredToken")
        return await log_in(*args)

    monkeypatch.setattr(boot, "log_in", refused)
    pool = started()
    assert offered.calm()
    values(pool, "1")
    offered.fail("TerminateInstances", "ExpiredToken", times=2)
    with pytest.warns(UserWarning, match="told to power off"):
        pool.close()
    until(lambda: not offered.machines)
    assert len(rental_records.entries()) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert swept().records == [pool.pool_id]
    offered.nothing_left()


def test_credentials_that_are_over_end_machines_that_were_not_readied(offered, monkeypatch):
    async def refused(*_: object):
        offered.fail("", "ExpiredToken", times=0)
        raise StartError("default", "it cannot be readied")

    monkeypatch.setattr(provisioning, "made_ready", refused)
    with pytest.raises(StartError, match="it cannot be readied"):
        started()
    until(lambda: not offered.machines)
    offered.calm()
    assert len(swept().records) == 1
    offered.nothing_left()


def test_without_rights_nothing_is_begun(offered):
    offered.fail("GetCallerIdentity", "InvalidClientTokenId")
    with pytest.raises(AccountError, match="aws configure"):
        started()
    assert rental_records.entries() == [] and offered.left() == {}


@pytest.mark.parametrize("step", few(1, ["launch", "boot", "environment"]))
def test_an_interrupt_leaves_nothing(offered, step):
    with pytest.raises(KeyboardInterrupt):
        started(interrupts_at(step))
    assert rental_records.entries() == [] and offered.left() == {}
    offered.nothing_left()
