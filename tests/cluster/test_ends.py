"""How pools on hosts end, and who finds them again: after `%sky down`, without their kernel, without anybody."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest
from cluster.notebooks import left_on, nothing_left
from kernels import kernel

pytestmark = pytest.mark.timeout(300)


@pytest.mark.extensive
def test_what_is_left_after_down_is_what_helps_the_next_up_also_by_a_hostfile(
    hosts, notebook, tmp_path
):
    town = hosts(2)
    (tmp_path / "mine").write_text(f"# ours\n{town.names[0]}\n\n{town.names[1]} slots=2\n")
    with notebook(town) as book:
        book.well("1")
        assert any(left_on(host) for host in town)
        assert book.kernel.run("%sky down", 60).status == "ok"
        nothing_left(town)
        book.options = f"hosts=@{tmp_path}/mine config={town.config} image=here ranks_per_node=1"
        assert book.values("socket.gethostname()") == town.names


def test_a_kernel_that_is_shut_down_leaves_nothing_there(hosts):
    town = hosts(1)
    with kernel() as running:
        running.run("import sys, skyward_nb as sky\nhere = sky.Image(interpreter=sys.executable)")
        line = f"%%sky_remote hosts={','.join(town.names)} config={town.config} image=here"
        assert running.run(f"{line}\n1", 90).status == "ok"
    nothing_left(town)


@pytest.mark.extensive
def test_a_pool_outlives_its_kernel_and_is_found_again(hosts, notebook):
    town = hosts(2)
    with notebook(town) as book:
        body = "import time\nkept = 5\nfor i in range(100):\n    print('line', i)\n    time.sleep(0.1)\n'end'"
        book.kernel.begin(book.code(body))
        book.kernel.client.get_iopub_msg(timeout=60)
        until_said(book, "line 3")
        words = book.kernel.restart(by_kill=True)
        found = re.search(r"%sky attach pool=\S+", words)
        assert found, words
        ran = book.kernel.run(found[0], 90)
        assert ran.status == "ok", ran.traceback
        assert [f"line {i}" in ran.picture for i in range(100)] == [True] * 100
        assert ran.result == "[0-1] 'end'"
        assert book.kernel.run("%%sky_remote\nkept").result == "[0-1] 5", words


def until_said(book, word):
    """Wait until a cell that goes on shows this."""
    while True:
        content = json.dumps(book.kernel.client.get_iopub_msg(timeout=60)["content"])
        if word in content:
            return


@pytest.mark.extensive
def test_an_agent_that_nobody_comes_back_to_ends_itself(hosts, notebook):
    town = hosts(1)
    with notebook(town) as book:
        book.options += " idle=5s"
        book.well("1")
        host = town[0]
        os.kill(book.kernel.manager.provisioner.pid, signal.SIGKILL)
        nothing_left(town, seconds=60)
        assert not [words for words in host.processes().values() if "skyward" in words]
        words = book.kernel.restart(by_kill=True)
        found = re.search(r"%sky attach pool=\S+", words)
        assert found, words
        ran = book.kernel.run(found[0], 90)
        assert ran.status == "error", ran.picture
        assert "%sky attach" not in book.kernel.restart(by_kill=True)
