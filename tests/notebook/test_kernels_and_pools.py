"""A notebook's kernel and its pools: made, lost, taken down; defaults, completion, whole notebooks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest
from kernels import by_files, kernel
from later import Later
from leaks import gone_within, traces
from waiting import until

nbclient = Later("nbclient")
nbformat = Later("nbformat")


def test_down_leaves_nothing_and_the_next_cell_makes_a_new_pool(fresh):
    start = traces()
    assert fresh.run("%%sky_remote nodes=2\nimport os; os.getppid()").status == "ok"
    assert "2 ranks ended" in fresh.run("%sky down").stdout
    left = {each for each in traces() - start if not each.startswith("child")}
    assert not left
    assert fresh.run("%sky down").stdout == "no pool is up\n"
    assert fresh.run("%%sky_remote\n1").result == "[0] 1"


def test_a_lost_pool_comes_again_as_it_was(fresh):
    fresh.run("import psutil, os")
    fresh.run("%%sky_remote nodes=3 gather=head out=forge\nimport os\nos.getppid()")
    fresh.run("agent = psutil.Process(forge).parent(); agent.kill(); agent.wait()")
    ran = fresh.run("%%sky_remote\n1")
    assert ran.result == "[0-2] 1"
    gone = "pool 'default' is gone: the agent on local is gone"
    assert gone in ran.picture
    assert "gone" not in fresh.run("%%sky_remote\n1").picture, "it is told once"


@pytest.mark.extensive
def test_what_is_lost_with_a_pool_between_cells_is_told_and_a_restart_makes_it_anew(fresh):
    kill = "forge = psutil.Process(pids.head).parent()\nagent = forge.parent(); forge.kill(); agent.wait()"
    made = "%%sky_remote nodes=2 out=pids\nimport os\ntrained = from_here + 1\nos.getpid()"
    gone = "pool 'default' is gone: its agent left: its forge ended; lost with it: trained"
    fresh.run("import psutil\nfrom_here = 1")
    fresh.run(made)
    fresh.run(kill)
    ran = fresh.run("%%sky_remote\ntrained")
    assert ran.error[0] == "NameError"
    assert gone in ran.traceback
    assert gone in ran.picture
    fresh.run(made)
    fresh.run(kill)
    for line in ("", " pool=default"):
        assert f"{gone}. %sky restart" in fresh.run(f"%sky status{line}").stdout
    assert gone in fresh.run("%sky pull trained").traceback
    ran = fresh.run("%sky restart")
    assert "Pool default is up: 2 ranks" in ran.picture
    assert gone in ran.picture
    assert "gone" not in fresh.run("%sky status").stdout
    assert fresh.run("%%sky_remote\nfrom_here").result == "[0-1] 1"


def test_a_pool_that_comes_again_names_the_way_to_go_on_from_its_checkpoints(fresh, tmp_path):
    fresh.run("import psutil, os")
    made = "import os, skyward_nb as sky\nx = [5]\nsky.checkpoint()\nos.getppid()"
    fresh.run(f"%%sky_remote nodes=2 gather=head out=forge checkpoint={tmp_path}/kept\n{made}")
    ran = fresh.run("%%sky_remote\nif sky.rank() == 0: sky.checkpoint()")
    assert "sky.checkpoint() was called up to 1 time, but less often on rank 1: " in ran.picture
    ran = fresh.run("%%sky_remote ranks=1\nimport os\nos._exit(1)")
    goes_on = "lost with the ranks: x\nthe next cell goes on from their newest checkpoint, if there is one"
    assert goes_on in ran.traceback
    assert (
        fresh.run("%%sky_remote gather=head out=forge\nassert x == [5]\nos.getppid()").status
        == "ok"
    )
    fresh.run("agent = psutil.Process(forge).parent(); agent.kill(); agent.wait()")
    ran = fresh.run("%%sky_remote\nx")
    assert ran.error[0] == "NameError"
    assert (
        "lost with it: x; with `resume replace` on its line, a cell goes on from the newest"
        in ran.traceback
    )
    ran = fresh.run("%%sky_remote resume replace\nx")
    assert ran.result == "[0-1] [5]"
    assert "goes on from the checkpoint of" in ran.picture


@pytest.mark.extensive
def test_two_pools_side_by_side(fresh):
    fresh.run("%%sky_remote pool=a nodes=2\nname = 'a'")
    fresh.run("%%sky_remote pool=b\nname = 'b'")
    assert fresh.run("%%sky_remote pool=a\nname").result == "[0-1] 'a'"
    assert fresh.run("%%sky_remote pool=b\nname").result == "[0] 'b'"
    assert "pool a is down" in fresh.run("%sky down --all").stdout


def test_processes_a_cell_started_go_with_the_pool(fresh):
    import psutil

    # Of this run alone: others may go on beside it.
    first, second = f"1000.{os.getpid()}", f"1001.{os.getpid()}"
    words = ["sleep", first], ["sleep", second]

    def sleepers():
        return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] in words]

    fresh.run(
        "%%sky_remote nodes=2\nimport subprocess\n"
        f"p = subprocess.Popen(['sleep', '{first}'])\n"
        f"q = subprocess.Popen(['setsid', 'sleep', '{second}'])"
    )
    until(lambda: len(sleepers()) == 4)
    assert fresh.run("%sky down").status == "ok"
    until(lambda: not sleepers())  # what was killed has a moment to end


def test_a_kernel_that_is_killed_leaves_nothing_after_the_lease(no_leaks):
    with kernel() as notebook:
        assert notebook.run("%%sky_remote nodes=2 idle=5s\n1").status == "ok"
        notebook.manager.provisioner.process.kill()
        notebook.manager.provisioner.process.wait()
        time.sleep(0.3)
        assert traces() - no_leaks, "the pool goes on for its lease"
        assert not gone_within(30, no_leaks)


def test_simulate_gives_the_ranks_an_accelerator_would(fresh):
    line = (
        "%%sky_remote accelerator=A100:2 nodes=2 simulate cpus=8+ memory=32 pip=msgspec[cuda12]\n"
    )
    ran = fresh.run(
        f"{line}import os, skyward_nb as sky\ni = sky.instance_info()\n"
        "(i.node, i.worker, i.accelerators, i.accelerator, os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    assert ran.result == "\n".join(
        f"[{rank}] ({rank // 2}, {rank % 2}, 2, 'A100', '')" for rank in range(4)
    )
    assert "simulate: CPU packages for pip=msgspec[cuda12]" in ran.picture
    assert "simulate: cpus=8+ memory=32 holds for rented machines" in ran.picture
    assert fresh.run(f"{line}1").status == "ok", "the same line fits the pool that is up"
    assert (
        "up with simulate=yes, and simulate=cuda"
        in fresh.run("%%sky_remote simulate=cuda\n1").error[1]
    )


def test_env_reaches_the_ranks_before_any_code(fresh):
    ran = fresh.run(
        "%%sky_remote env=COLOUR=blue,N=2\nimport os\nos.environ['COLOUR'], os.environ['N']"
    )
    assert ran.result == "[0] ('blue', '2')"


def test_a_runtime_folder_that_cannot_be_used(fresh, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    fresh.run(f"%env SKYWARD_RUNTIME_DIR={blocked}")
    ran = fresh.run("%%sky_remote\n1")
    assert ran.error[0] == "RuntimeFolderError"
    assert "SKYWARD_RUNTIME_DIR" in ran.traceback
    assert str(blocked) in ran.traceback
    assert fresh.run("1").result == "1"
    fresh.run(f"%env SKYWARD_RUNTIME_DIR={tmp_path / ('x' * 90)}")
    assert "too long for a socket" in fresh.run("%%sky_remote\n1").traceback


def test_a_saved_notebook_keeps_the_final_picture_and_run_all_stops_at_a_failing_cell(no_leaks):
    from nbclient.exceptions import CellExecutionError

    cells = [
        "%load_ext skyward_nb",
        "%%sky_remote nodes=2\nimport time, skyward_nb as sky\n"
        "for i in sky.progress(range(4)):\n    print('at', i); time.sleep(0.1)",
        "%%sky_remote\n1/0",
        "never = 1",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    with by_files() as config, pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        nbclient.NotebookClient(notebook, kernel_name="python3", config=config).execute()
    assert notebook.cells[3].execution_count is None
    (output,) = notebook.cells[1].outputs
    assert "4/4 · 100%" in output.data["text/plain"]
    assert "[0-1] at 3" in output.data["text/plain"]
    assert "<table" in output.data["text/html"]
    assert "<script" not in output.data["text/html"]


def test_a_plain_ipython_terminal_prints_lines_with_ranks(no_leaks, tmp_path):
    script = tmp_path / "cells.ipy"
    script.write_text(
        "%load_ext skyward_nb\n"
        "get_ipython().run_cell_magic('sky_remote', 'nodes=2', 'print(\"hello\")\\n3')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", str(script)],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    said = re.findall(r"^\[ranks? (0|1|0-1)\] hello$", done.stdout, re.MULTILINE)
    assert said in (["0-1"], ["0", "1"], ["1", "0"])


def test_defaults_of_the_session_and_the_project(fresh, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.skyward]\nnodes = 3\n")
    fresh.run(f"%cd -q {tmp_path}")
    assert fresh.run("%%sky_remote\n1").result == "[0-2] 1"
    shown = fresh.run("%sky config gather=head").stdout
    assert "gather=head  (%sky config)" in shown
    assert "nodes=3" in shown
    assert fresh.run("%%sky_remote\n1").result == "1"
    assert fresh.run("%%sky_remote gather=all\n1").result == "[0-2] 1"
    assert "did you mean nodes" in fresh.run("%sky config nods=4").stderr


def test_a_default_that_was_mended_is_read_again(fresh, tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.skyward]\nnodes = 'two'\n")
    fresh.run(f"%cd -q {tmp_path}")
    for _ in range(2):
        assert "nodes=two" in fresh.run("%%sky_remote\n1").stderr
    project.write_text("[tool.skyward]\nnodes = 2\n")
    assert fresh.run("%%sky_remote\n1").result == "[0-1] 1"


def test_a_pool_of_the_defaults_is_the_one_that_verbs_mean(fresh):
    fresh.run("%sky config pool=train nodes=2")
    fresh.run("%%sky_remote\nkept = 1")
    assert "kept  0-1" in fresh.run("%sky vars").stdout
    assert fresh.run("%sky pull kept").stdout.startswith("kept: one value per rank")
    assert "Generation 2 of pool train" in fresh.run("%sky restart").picture


def test_completion_and_help_in_a_real_kernel(fresh):

    def complete(code):
        reply = fresh.client.complete(code, reply=True, timeout=60)["content"]
        return [code[: reply["cursor_start"]] + match for match in reply["matches"]]

    assert "%%sky_remote nodes=4 accelerator=" in complete("%%sky_remote nodes=4 acc")
    assert "%sky restart" in complete("%sky rest")
    assert "%%sky_remote framework=torch" in complete("%%sky_remote framework=to")
    asked = fresh.run("import sys\n'jedi' in sys.modules").result
    assert asked == "False", "it would take seconds, and know nothing of this"
    reply = fresh.client.inspect("%%sky_remote", reply=True, timeout=60)["content"]
    assert "ranks_per_node=auto|N" in str(reply["data"])


def test_unloading_takes_pools_and_magics_away(fresh):
    before = traces()
    assert fresh.run("%%sky_remote nodes=2\n1").status == "ok"
    said = fresh.run("%unload_ext skyward_nb").stdout
    assert said == "pool default is down: 2 ranks ended, nothing left running\n"
    assert not {each for each in traces() - before if not each.startswith("child")}
    assert "not found" in fresh.run("%%sky_remote\n1").stderr
    assert fresh.run("%load_ext skyward_nb").status == "ok"
    assert fresh.run("%%sky_remote\n1").result == "[0] 1"


@pytest.mark.extensive
def test_worker_processes_of_a_cell_may_print(fresh):
    ran = fresh.run(
        "%%sky_remote nodes=2\n"
        "import multiprocessing, os\n"
        "def work(i):\n    print('worker', i)\n    return i * i\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    squares = pool.map(work, range(3))\n"
        "squares"
    )
    assert ran.result == "[0-1] [0, 1, 4]"
    assert "worker 2" in ran.picture
    assert fresh.run("%%sky_remote\n'fine'").result == "[0-1] 'fine'"


@pytest.mark.extensive
def test_figures_of_ranks_are_inlined(fresh):
    pytest.importorskip("matplotlib")
    ran = fresh.run(
        "%%sky_remote nodes=2\nimport matplotlib.pyplot as plt\n"
        "plt.plot([1, 2, 3]);\nprint('after')"
    )
    assert ran.html.count("data:image/png;base64,") == 1, "equal ones are one"
    assert 'alt="figure of ranks 0-1"' in ran.html
    ran = fresh.run("%%sky_remote\nimport os\nplt.plot([1, int(os.environ['RANK'])]);")
    assert ran.html.count("data:image/png;base64,") == 2
    assert 'alt="figure of rank 1"' in ran.html
