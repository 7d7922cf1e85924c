"""`skyward-nb rehearse aws`: against the API of EC2, with machines that boot and end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from waiting import until

from skyward_nb.cli import main, rehearsal
from skyward_nb.cli.documents import Rehearsal
from skyward_nb.cli.rehearsal_acts import ACTS
from skyward_nb.providers.aws import rental_records
from skyward_nb.words.decoding import from_json

pytestmark = pytest.mark.timeout(600)


@pytest.mark.extensive
def test_two_machines_and_a_killed_client_show_what_they_must(cloud, capfd):
    words = ["rehearse", "aws", "cpu", "killed", "region=us-east-1", f"python={sys.executable}", "yes", "--json"]  # fmt: skip
    code = main(words)
    told, said = capfd.readouterr()
    found = from_json(told.encode(), Rehearsal)
    assert code == 0, said
    assert [(each.name, each.trouble) for each in found.acts] == [("cpu", ""), ("killed", "")]
    assert "2 of 2 acts have shown what they must" in said
    assert 0 < sum(each.dollars for each in found.acts) < 0.1
    assert found.left == ()
    cloud.nothing_left()
    assert rental_records.entries() == []


@pytest.mark.extensive
def test_a_machine_that_does_not_end_by_itself_is_ended_and_told(cloud, capfd, monkeypatch):
    monkeypatch.setattr(rehearsal, "_IDLE_END_LIMIT", 0.0)
    words = ["rehearse", "aws", "killed", "region=us-east-1", f"python={sys.executable}", "yes", "--json"]  # fmt: skip
    assert main(words) == 1
    told, said = capfd.readouterr()
    (act,) = from_json(told.encode(), Rehearsal).acts
    was_killed, ended, gone = act.checks
    assert was_killed.holds and was_killed.seen.startswith("i-"), said
    assert (ended.holds, ended.seen) == (False, "not within 0 s")
    assert not gone.holds and gone.seen == was_killed.seen
    assert from_json(told.encode(), Rehearsal).left == ()
    cloud.nothing_left()


@pytest.mark.extensive
def test_a_rehearsal_that_is_told_to_end_leaves_nothing(cloud):
    words = ["rehearse", "aws", "killed", "region=us-east-1", f"python={sys.executable}", "yes"]
    command = [sys.executable, "-m", "skyward_nb", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        until(lambda: "RunInstances" in cloud.actions(), 60)
        running.send_signal(signal.SIGTERM)
        said = running.communicate(timeout=200)[0].decode()
    assert running.returncode == 130, said
    assert "0 of 1 acts have shown" in said
    cloud.nothing_left()


def test_nothing_is_rented_without_a_yes(api, capsys):
    """The plan has each act, its machines and the most that it may cost."""
    assert main(["rehearse", "aws", "region=us-east-1", "max_cost=10"]) == 1
    told, said = capsys.readouterr()
    for each in ACTS:
        assert f"{each.name} " in told and " ".join(each.options) in told
    assert "all of it: at most $" in told
    assert "`yes` agrees to what this may cost" in said
    assert "RunInstances" not in api.actions()


def test_what_may_cost_more_than_max_cost_is_not_begun(api, capsys):
    assert main(["rehearse", "aws", "region=us-east-1", "yes", "max_cost=0.5"]) == 2
    said = capsys.readouterr().err
    assert "may cost $" in said and "rehearse aws cpu" in said
    assert "RunInstances" not in api.actions()


def test_an_act_whose_machines_are_not_to_be_had_says_so_and_is_no_pass(api, capsys):
    api.fail("RunInstances", "UnauthorizedOperation", times=0)
    assert main(["rehearse", "aws", "cpu", "region=us-east-1", "yes"]) == 1
    told = capsys.readouterr().out
    assert (
        "✗ " in told
        and "UnauthorizedOperation" in told
        and "0 of 1 acts have shown what they must" in told
    )
