"""Cells on rented machines, in a real kernel: what it would cost, who agrees, what it costs, what is left."""

from __future__ import annotations

import re
import shutil

import pytest
from kernels import ready
from leaks import leaves_nothing

IMAGE = "import sys\nimport skyward_nb as sky\nown = sky.Image(interpreter=sys.executable)"
SPEND = """
import time
from msgspec.structs import replace
session = get_ipython().magics_manager.magics["cell"]["sky_remote"].__self__.session
pool = session.pools["default"]
pool.context.bill = replace(pool.bill, began=time.time(), before={share} * 5)
"""
"""Has the pool have cost a share of what it may."""
RENTED = "provider=aws region=us-east-1 cpus=2 image=own"


@pytest.fixture
def cloud(shared_cloud):
    shared_cloud.reset()
    yield shared_cloud
    shared_cloud.nothing_left()


@pytest.fixture(scope="module")
def running(account):
    """One kernel for all tests of this module."""
    with ready() as running:
        yield running


@pytest.fixture
def notebook(cloud, running, account):
    """The kernel without a pool, names, and records of what was rented."""
    # Else a sweep looks for what those before have left.
    shutil.rmtree(account / "state", ignore_errors=True)
    assert running.run(IMAGE).status == "ok"
    with leaves_nothing():
        yield running
        running.client.allow_stdin = True
        cloud.calm()
        for each in ("%sky down all", "%reset -f"):
            ran = running.run(each)
            assert ran.status == "ok", ran.traceback


def answered(kernel, code, answer, timeout=60):
    """Run a cell that asks, and answer; what was asked, and what the cell gave."""
    message = kernel.begin(code)
    asked = kernel.client.get_stdin_msg(timeout=timeout)["content"]["prompt"]
    kernel.client.input(answer)
    return asked, kernel.finish(message, timeout)


def test_a_dry_run_shows_what_can_be_rented_and_rents_nothing(cloud, notebook):
    ran = notebook.run(f"%sky up {RENTED} nodes=2 dry_run")
    assert "a pool would be started: 2 ranks on 2 nodes (aws)" in ran.stdout
    assert "2 × c6" in ran.stdout and " / h" in ran.stdout and "list price of 2026" in ran.stdout
    ran = notebook.run(f"%%sky_remote {RENTED} nodes=2 dry_run\n1")
    assert "a pool would be started first" in ran.picture and " / h" in ran.picture
    assert "RunInstances" not in cloud.actions()


def test_over_a_limit_a_person_is_asked(cloud, notebook):
    asked, ran = answered(notebook, f"%sky up {RENTED} confirm_above=0.001", "n")
    assert asked.startswith("Rent that, for $0.0") and asked.endswith("an hour? [y/N] ")
    assert ": nothing was rented" in ran.traceback
    assert "RunInstances" not in cloud.actions()


@pytest.mark.extensive
def test_where_nobody_can_be_asked_nothing_is_rented(cloud, notebook):
    notebook.client.allow_stdin = False
    ran = notebook.run(f"%%sky_remote {RENTED} confirm_above=0.001\n1")
    assert "nobody can be asked here, and nothing was rented" in ran.traceback
    assert "max_cost=20" in ran.traceback
    assert "RunInstances" not in cloud.actions()


@pytest.mark.extensive
def test_the_way_to_machines_and_what_they_cost_are_shown_until_their_end(cloud, notebook):
    cloud.capacity("c6i.large", "us-east-1a", 0)
    rented = RENTED.replace("cpus=2", "instance_type=c6i.large nodes=2")
    ran = notebook.run(f"%%sky_remote {rented}\nimport os\nos.environ['RANK']", 110)
    assert ran.status == "ok", ran.traceback
    assert ran.result == "[0] '0'\n[1] '1'"
    there, here = (f"c6i.large in us-east-1{zone}" for zone in "ab")
    assert f"next zone: {here} (not {there}: " in ran.picture
    took = r"([\d.]+ m?s|\d+:\d\d)"
    time_line = f"launch {took}, boot {took}, login {took}, .*agent {took}"
    assert re.search(time_line, ran.picture)
    assert " / h, $0.0" in ran.picture and "so far" in ran.picture
    record = ran.displays[-1]
    assert any("skyward.run+json" in kind for kind in record)
    costs = notebook.run("%sky cost").stdout
    assert " / h, $0.0" in costs and "2 × c6" in costs and "us-east-1" in costs
    assert " / h" in notebook.run("%sky status").stdout
    down = notebook.run("%sky down").stdout
    assert "nothing left running; it has cost $0.0" in down
    assert "is down, and has cost" in notebook.run("%sky cost").stdout
    cloud.nothing_left()


def test_what_machines_cost_that_never_became_a_pool_is_told(cloud, notebook):
    cloud.dead()
    ran = notebook.stopped(f"%%sky_remote {RENTED}\n1", "boot ▸")
    assert ran.status == "error"
    cloud.nothing_left()
    assert "default: did not come up, and has cost $0.0" in notebook.run("%sky cost").stdout


@pytest.mark.extensive
def test_what_machines_cost_of_which_not_all_ran_is_told(cloud, notebook):
    cloud.fail("DescribeInstances", "UnauthorizedOperation")
    rented = RENTED.replace("cpus=2", "instance_type=c6i.large nodes=2")
    ran = notebook.run(f"%%sky_remote {rented}\n1", 110)
    assert ran.error[0] == "AccountError", ran.traceback
    assert "$0.003 spent" in ran.picture, "two, a minute each"
    assert re.search(
        r"default: did not come up, and has cost \$0\.003 in .* · machines that ended before all ran",
        notebook.run("%sky cost").stdout,
    )
    cloud.nothing_left()


def test_what_may_be_spent_stops_new_work_and_a_pool_that_ended_for_it_is_not_rented_again_unasked(
    cloud, notebook
):
    ran = notebook.run(f"%%sky_remote {RENTED} max_cost=5\nx = 7", 110)
    assert ran.status == "ok", ran.traceback
    notebook.run(SPEND.format(share=0.9))
    ran = notebook.run("%%sky_remote\nx + 1")
    assert ran.result == "[0] 8"
    assert "of max_cost=5 is spent: the machines end in" in ran.picture
    assert "are spent" not in notebook.run("%%sky_remote\nx").picture, "it is said once"
    notebook.run(SPEND.format(share=1.1))
    ran = notebook.run("%%sky_remote\nx + 1")
    assert "has cost $5.5" in ran.traceback and "it runs nothing new" in ran.traceback
    ran = notebook.run("%sky pull x")
    assert ran.status == "ok", ran.traceback
    assert notebook.run("x").result == "[0] 7"
    notebook.run(SPEND.format(share=0.9997))
    (machine,) = cloud.machines
    ran = notebook.run(
        "%%sky_remote\nimport time\nprint('here')\ntime.sleep(100)",
        110,
        on_update=lambda text: "here" in text and cloud.machines and machine.reclaim(),
    )
    assert "max_cost=5 is spent, and its machines end then" in ran.traceback
    for line in ("", " max_cost=5"):
        ran = notebook.run(f"%%sky_remote{line}\n1", 110)
        assert "BudgetSpent" in ran.traceback and "No other is rented" in ran.traceback
    assert cloud.actions().count("RunInstances") == 1
    assert "default: is gone, and has cost $5.00" in notebook.run("%sky cost").stdout
    assert "pool default is gone, and is not started again" in notebook.run("%sky down").stdout
    assert notebook.run("%%sky_remote dry_run\n1").picture.count("(local)") == 1
    cloud.nothing_left()


WAITS = """%%sky_remote
import time
import skyward_nb as sky
saved = []
sky.on_preempt(lambda: saved.append("saved"))
until = time.monotonic() + 60
while not saved and time.monotonic() < until:
    time.sleep(0.05)
saved"""


@pytest.mark.extensive
def test_a_notice_is_in_the_picture_and_what_is_not_known_to_be_gone_is_not_said_to_be(
    cloud, notebook
):
    ran = notebook.run(f"%%sky_remote {RENTED} spot=yes\n1", 110)
    assert ran.status == "ok", ran.traceback
    (machine,) = cloud.machines
    running = notebook.begin(WAITS)
    machine.notice()
    ran = notebook.finish(running, 90)
    assert ran.status == "ok", ran.traceback
    assert ran.result == "[0] ['saved']"
    assert "EC2 takes this machine back at" in ran.picture
    assert f"{machine.instance} is taken back at " in notebook.run("%sky status").stdout
    cloud.fail("TerminateInstances", "UnauthorizedOperation", times=0)
    cloud.fail("DescribeInstances", "ExpiredToken", times=0)
    down = notebook.run("%sky down", 110)
    assert "AWS did not confirm the end of" in down.stdout and not down.stderr
    assert f"1 rank ended; {machine.instance} may run on; it has cost" in down.stdout
    paid = notebook.run("%sky cost").stdout
    assert f"default: is down ({machine.instance} may run on), and has cost $0.0" in paid
    assert "nothing left running" not in down.stdout and "aws sso login" in down.stdout
    swept = notebook.run("%sky sweep").stdout
    assert "not confirmed to be gone: " in swept and "AWS: nothing was left" not in swept
    cloud.calm()
    assert "ended leftovers" in notebook.run("%sky sweep").stdout
    cloud.nothing_left()


@pytest.mark.extensive
def test_a_machine_that_is_taken_back_is_replaced_in_the_picture_of_the_next_cell(cloud, notebook):
    # Of one type alone: where there is none, each further one takes a while to find out.
    rented = RENTED.replace("cpus=2", "instance_type=c6i.large nodes=2 on_preempt=replace")
    ran = notebook.run(f"%%sky_remote {rented}\nx = 7\nx", 110)
    assert ran.status == "ok", ran.traceback
    first, second = cloud.machines
    cloud.fail("RunInstances", "InsufficientInstanceCapacity", times=0)
    second.reclaim()
    ran = notebook.run("%%sky_remote\n1", 110)
    assert "NotReplaced" in ran.traceback and "It keeps its other machine (1)" in ran.traceback
    status = notebook.run("%sky status").stdout
    assert f"ended with {second.instance} (EC2 says" in status
    assert "the next run starts all ranks anew" in status
    cloud.calm()
    ran = notebook.run(
        "%%sky_remote\nimport skyward_nb as sky\nsky.instance_info().generation", 110
    )
    assert ran.status == "ok", ran.traceback
    assert ran.result == "[0-1] 2"
    assert f"({second.instance}): EC2 says that it is terminated" in ran.picture
    assert "in place of node" in ran.picture and "; it took " in ran.picture
    assert "lost with the ranks: x" in ran.picture
    assert {each.instance for each in cloud.machines} > {first.instance}
    notebook.run("%sky down")
    cloud.nothing_left()
