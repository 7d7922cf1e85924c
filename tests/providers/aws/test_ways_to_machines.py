"""The ways to rented machines: who is let in, through what, and what is said where nothing answers."""

from __future__ import annotations

import asyncio

import pytest

from skyward_nb.providers.aws import callers, key_pairs
from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.network import subnets_in
from skyward_nb.providers.aws.rental_records import (
    CreatedResource,
    MakerProcess,
    RentalRecord,
    RunningInstance,
)
from skyward_nb.providers.aws.silence import most_for, spell_silence
from skyward_nb.providers.aws.tags import tags_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec


def record(**fields):
    return RentalRecord(
        pool_id="p-1",
        name="p",
        owner="me",
        maker=MakerProcess.this(),
        created=0.0,
        user="ubuntu",
        **fields,
    )


def machine(public=None):
    return RunningInstance(instance="i-1", region="us-east-1", zone="us-east-1a", type="g6.xlarge", public=public, private="10.0.0.9", host_key="ssh-ed25519 AAAA")  # fmt: skip


def let_in(jump="", named=(), inside=""):
    return asyncio.run(callers.callers_for(jump, named, inside))


def test_who_logs_in_by_which_way(monkeypatch):
    async def seen():
        return ("203.0.113.7/32",)

    monkeypatch.delenv("SKYWARD_CALLER", raising=False)
    monkeypatch.setattr(callers, "caller_networks", seen)
    monkeypatch.setattr(callers, "_source_to", lambda _: ("192.168.1.5/32",))
    monkeypatch.setattr(callers, "_source_of", lambda jump, inside: f"{jump} to {inside}")
    assert let_in() == ("203.0.113.7/32",)
    assert let_in(inside="10.0.0.0") == ("192.168.1.5/32", "203.0.113.7/32")
    assert let_in("me@bastion", inside="10.0.0.0") == ("me@bastion to 10.0.0.0",)
    assert let_in("me@bastion", ("10.0.0.5/32",)) == ("10.0.0.5/32",)
    assert let_in("ssm", ("10.0.0.5/32",), "10.0.0.0") == ()


def test_a_private_network_that_lets_nobody_ask_outside_is_enough(monkeypatch):
    async def seen():
        raise AWSError("NoCallerAddress", "no answer", "caller")

    monkeypatch.delenv("SKYWARD_CALLER", raising=False)
    monkeypatch.setattr(callers, "caller_networks", seen)
    monkeypatch.setattr(callers, "_source_to", lambda _: ("10.9.0.5/32",))
    assert let_in(inside="10.0.0.0") == ("10.9.0.5/32",)
    monkeypatch.setattr(callers, "_source_to", lambda _: ())
    with pytest.raises(AWSError):
        let_in(inside="10.0.0.0")


def test_a_jump_host_tells_its_address_there():
    said = "10.0.0.9 via 10.0.1.1 dev ens5 src 10.0.1.23 uid 1000 \\    cache"
    assert callers.source_in(said, "") == "10.0.1.23/32"
    with pytest.raises(ValueError, match="Permission denied"):
        callers.source_in("", "me@bastion: Permission denied (publickey).")


def test_the_way_is_in_the_config(tmp_path):
    def config(**fields):
        key_pairs.access_to(tmp_path, record(**fields), [machine()])
        return (tmp_path / "config").read_text()

    assert "ProxyCommand" not in config()
    jump = config(jump="ssh://me@bastion:2222")
    assert "ProxyCommand ssh -o BatchMode=yes -W 10.0.0.9:22 -- ssh://me@bastion:2222" in jump
    ssm = config(jump="ssm", profile="lab")
    assert "aws ssm start-session --target i-1 --region us-east-1" in ssm
    assert "--parameters portNumber=22 --profile lab" in ssm


def test_a_program_that_a_way_needs_is_missed_before_anything_is_rented(monkeypatch):
    monkeypatch.setattr(callers.shutil, "which", lambda name: "/bin/aws" if name == "aws" else None)
    spec = PoolSpec(provider="aws", aws=AWSAccess(jump="ssm"))
    with pytest.raises(OptionError, match="needs `session-manager-plugin`, which is not here"):
        callers.check_way(spec)
    callers.check_way(PoolSpec(provider="aws", aws=AWSAccess()))


def test_where_nothing_answers_it_is_said_what_lets_in_whom():
    made = (CreatedResource("group", "us-east-1", "sky-p-1"),)
    said = spell_silence(record(made=made, let_in=("203.0.113.7/32",)), [machine("1.2.3.4")])
    assert "i-1 at 1.2.3.4 port 22 gives no answer" in said
    assert "security group sky-p-1 lets in 203.0.113.7/32" in said and "caller=" in said
    private = spell_silence(record(), [machine(), machine()])
    assert "10.0.0.9 port 22, and 1 more" in private and "jump=me@bastion" in private
    assert "is your own" in private
    assert most_for("p5.48xlarge") > most_for("g6.xlarge")


def test_where_nothing_answers_by_another_way_it_is_not_advised_again():
    made = (CreatedResource("group", "us-east-1", "sky-p-1"),)
    by_host = spell_silence(
        record(made=made, let_in=("10.0.0.5/32",), jump="ssh://me@bastion"), [machine()]
    )
    assert (
        "no answer by jump=ssh://me@bastion; the security group sky-p-1 lets in 10.0.0.5/32"
        in by_host
    )
    assert (
        "`ssh -o BatchMode=yes ssh://me@bastion true`" in by_host and "caller=10.0.0.5" in by_host
    )
    assert "jump=me@bastion" not in by_host and "jump=ssm" not in by_host
    by_ssm = spell_silence(record(made=made, jump="ssm"), [machine()])
    assert "instance_profile=" in by_ssm and "AmazonSSMManagedInstanceCore" in by_ssm
    assert "bastion" not in by_ssm and "lets in" not in by_ssm


class Subnets:
    def __init__(self, *found):
        self.found = found

    async def ask(self, *_, **__):
        return {"Subnets": [dict(zip(("SubnetId", "AvailabilityZone", "MapPublicIpOnLaunch", "VpcId", "CidrBlock"), each, strict=True)) for each in self.found]}  # fmt: skip


def test_subnets_of_several_zones_each_as_it_says():
    a, b = ("s-a", "z-a", True, "v", "10.0.0.0/24"), ("s-b", "z-b", False, "v", "10.0.1.0/24")
    also = ("s-c", "z-b", True, "v", "10.0.2.0/24")
    named = AWSAccess(subnet=("s-b", "s-a", "s-c"))
    found = asyncio.run(subnets_in(Subnets(a, also, b), named, "r"))
    assert found.by_zone == {"z-a": "s-a", "z-b": "s-b"} and found.private == {"z-b"}
    assert found.inside == "10.0.1.1", "a host's, as Linux lets nobody connect to a network's own"
    hidden = AWSAccess(subnet=("s-a",), public_ip=False)
    assert asyncio.run(subnets_in(Subnets(a), hidden, "r")).private == {"z-a"}
    shown = AWSAccess(subnet=("s-b",), public_ip=True)
    assert asyncio.run(subnets_in(Subnets(b), shown, "r")).private == frozenset()
    other = ("s-d", "z-d", True, "another", "10.1.0.0/24")
    with pytest.raises(AWSError, match="several VPCs"):
        asyncio.run(subnets_in(Subnets(a, other), AWSAccess(subnet=("s-a", "s-d")), "r"))


def test_tags_of_ones_own_are_on_all_and_take_no_place_of_ours():
    tags = {
        each["Key"]: each["Value"]
        for each in tags_of(record(tags=(("team", "vision"), ("skyward:pool", "x"))))
    }
    assert tags["team"] == "vision" and tags["skyward:pool"] == "p-1"
