"""From a cell to machines that are rented, and back: provision, boot, login, bootstrap, run, terminate."""

from __future__ import annotations

import os
import shutil
import signal
import threading

import pytest
from cloud.notebooks import rented
from ddp_cell import DDP
from kernels import ready
from later import needs

pytestmark = pytest.mark.timeout(300)
needs_torch = needs("torch")

_CHANGES = ("Create", "Run", "Authorize", "Import", "Request")


@pytest.fixture
def cloud(shared_cloud, account):
    # Else a sweep looks for what those before have left.
    shutil.rmtree(account / "state", ignore_errors=True)
    shared_cloud.reset()
    return shared_cloud


@pytest.fixture(scope="module")
def running(account):
    """One kernel for all tests that do not end it."""
    with ready() as made:
        yield made


def changes(cloud):
    """What was asked for that would make something."""
    return [each for each in cloud.actions() if each.startswith(_CHANGES)]


def answered(book, word):
    """Run a cell whose price is asked about, and answer this."""
    client = book.kernel.client
    begun = book.kernel.begin(book.code("1"))
    asked = client.get_stdin_msg(timeout=60)
    assert "$" in asked["content"]["prompt"]
    client.input(word)
    return book.kernel.finish(begun)


@needs_torch
@pytest.mark.extensive
def test_torch_trains_on_machines_that_did_not_exist_and_do_not_any_more(cloud, running):
    with rented(cloud, shared=running) as book:
        book.options += " framework=torch"
        found = book.values(
            f'{DDP}[socket.gethostname(), total, weights, os.environ["MASTER_ADDR"]]', timeout=150
        )
        machines = cloud.machines
        assert {each[0] for each in found} == {each.name for each in machines}
        assert [each[1] for each in found] == [3.0, 3.0]
        assert len({each[2] for each in found}) == 1
        assert all(each.status == 0 for each in machines)
        # They reach one another where only they are: at public ones, none reaches another.
        assert {each[3] for each in found} <= {each.private for each in machines}
        down = book.kernel.run("%sky down", 60)
        assert down.status == "ok", down.traceback
        cloud.nothing_left()
        assert cloud.actions().count("RunInstances") == 1


def test_what_it_costs_is_shown_before_meanwhile_and_after(cloud, running):
    with rented(cloud, nodes=1, shared=running) as book:
        ran = book.kernel.run(f"%sky up dry_run {book.options}", 60)
        assert ran.status == "ok", ran.traceback
        shown = ran.stdout + ran.picture + (ran.result or "")
        assert "c6i.large" in shown and "$" in shown, ran
        assert not changes(cloud)
        book.options = book.options.replace(" yes", " confirm_above=0.01")
        refused = answered(book, "no")
        assert refused.status == "error" and "c6i.large" in refused.stdout, refused
        assert not changes(cloud) and not cloud.left()
        book.options = book.options.replace("confirm_above=0.01", "confirm_above=5")
        ran = book.well("1", "max_cost=5")
        assert "$" in ran.picture, ran.picture
        assert "$" in book.here("%sky cost")


@pytest.mark.extensive
def test_uv_makes_an_environment_on_machines_that_reach_no_index(cloud, running, index_here):
    with rented(cloud, nodes=1, shared=running) as book:
        book.has_environment_of(index_here)
        (prefix,) = book.values("import six\nsys.prefix", timeout=250)
        assert "skyward_nb/envs/" in prefix, prefix
        (machine,) = cloud.machines
        said = book.here(f"%sky logs node={machine.instance}")
        assert "environment: Installed " in said, said


def test_an_interrupt_while_machines_boot_leaves_none(cloud, running):
    with rented(cloud, shared=running) as book:
        cloud.dead()
        stop = threading.Event()

        def press():
            cloud.ask("settled")
            while not stop.wait(0.1):
                actions = cloud.actions()
                # Its answer was heard where something is asked after it.
                if "RunInstances" in actions[:-1]:
                    book.kernel.interrupt()
                    return

        pressing = threading.Thread(target=press)
        pressing.start()
        ran = book.cell("1", timeout=120)
        stop.set()
        pressing.join()
        assert ran.status == "error"
        assert "that had started were ended (i-" in ran.picture
        cloud.nothing_left()


@pytest.mark.extensive
def test_a_laptop_sleeps_past_the_lease(cloud, running):
    """Its machines have ended by themselves; awake again, it says so, and can have others."""
    with rented(cloud, nodes=1, shared=running) as book:
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
