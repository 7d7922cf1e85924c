"""Which other people may log in: the rule, with accounts of its own."""

from __future__ import annotations

import os
import pwd

import pytest

from skyward_nb.plugins.plugin_base import TRUSTS, check_people
from skyward_nb.system import other_accounts
from skyward_nb.words.info import InstanceInfo, Peer


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine whose accounts are made here: `add(name, uid)`; its passwords are read by root alone."""
    accounts, shadow = [], tmp_path / "shadow"
    monkeypatch.setattr(other_accounts, "_SHADOW", shadow)
    monkeypatch.setattr(other_accounts, "_HOMES", tmp_path / "nothing")
    monkeypatch.setattr(pwd, "getpwall", lambda: accounts)

    def add(name, uid, *, shell="/bin/bash", home=True, password=None, keys=False):
        folder = tmp_path / name
        if home:
            (folder / ".ssh").mkdir(parents=True)
        if keys:
            (folder / ".ssh/authorized_keys").touch()
        if password is not None:
            with shadow.open("a") as file:
                file.write(f"{name}:{password}:20000:0:::::\n")
        accounts.append(pwd.struct_passwd((name, "x", uid, uid, "", str(folder), shell)))

    return add


@pytest.mark.parametrize(
    ("uid", "made", "counts"),
    [
        (1001, {}, True),
        (999, {}, False),
        (65_534, {}, False),
        (os.geteuid(), {}, False),
        (1001, {"shell": "/usr/sbin/nologin"}, False),
        (1001, {"home": False}, False),
        (1001, {"password": "!"}, False),
        (1001, {"password": "*"}, False),
        (1001, {"password": "!", "keys": True}, True),
        (1001, {"password": "$y$j9T$..."}, True),
        (1001, {"password": ""}, True),
    ],
)
def test_who_counts(machine, uid, made, counts):
    machine("ann", uid, **made)
    assert other_accounts.other_people() == (["ann"] if counts else [])


def test_an_account_that_is_listed_nowhere_counts_by_its_home(machine, monkeypatch, tmp_path):
    (tmp_path / "homes/eve").mkdir(parents=True)
    monkeypatch.setattr(other_accounts, "_HOMES", tmp_path / "homes")
    eve = pwd.struct_passwd(("eve", "x", 2001, 2001, "", str(tmp_path / "homes/eve"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: eve)
    assert other_accounts.other_people() == ["eve"]


def test_frameworks_join_machines_of_others_only_where_that_is_accepted(machine):
    here = InstanceInfo(peers=(Peer(0, "127.0.0.1"), Peer(1, "127.0.0.1")))
    several = InstanceInfo(peers=(Peer(0, "10.0.0.1"), Peer(1, "10.0.0.2")))
    check_people(several, {}, "they could")
    machine("ann", 1001)
    check_people(here, {}, "they could")
    check_people(several, {TRUSTS: "yes"}, "they could")
    with pytest.raises(RuntimeError, match=r"\(ann\), and they could.*add trust_local_users"):
        check_people(several, {}, "they could")
