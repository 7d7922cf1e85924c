"""`skyward-nb run`: scripts on real pools, to every end that there is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import msgspec
import psutil
import pytest
from later import needs
from leaks import traces
from pools import found, values
from terminals import COMMAND, begun, ended, said, sky
from waiting import until

from skyward_nb.api.script import ScriptEnd
from skyward_nb.pool import registry

needs_torch = needs("torch")


BOTH = [0, 1]


@pytest.fixture
def script(tmp_path, no_leaks):
    """Writes a script, and tells its name."""

    def write(text, name="train.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    write.folder = tmp_path
    yield write
    assert sky("status").stdout == "no pool is up\n"


def run(script, *words, **env):
    return sky("run", *words, folder=script.folder, **env)


# ── a good end ──────────────────────────────────────────────────────────────────────────


def test_a_script_runs_as_main_on_every_rank_as_with_torchrun(script):
    script("VALUE = 'of a module beside it'", "sub/beside.py")
    name = script(
        "import json, os, sys\n"
        "import beside\n"
        "names = 'RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK'.split()\n"
        "if __name__ == '__main__':\n"
        "    print(json.dumps([{n: os.environ.get(n) for n in names}, sys.argv, __file__,\n"
        "        os.getcwd(), beside.VALUE, bool(os.environ['MASTER_ADDR']),\n"
        "        int(os.environ['MASTER_PORT']) > 0, sys.modules['__main__'].names == names]))\n",
        "sub/train.py",
    )
    ran = run(script, "nodes=2", "--ranks-per-node", "2", name, "--lr", "0.1", "nodes=3", "-h")
    assert ran.code == 0, ran.stderr
    lines = sorted(line.partition("] ")[2] for line in ran.stdout.splitlines())
    assert len(lines) == 4
    path = str(script.folder / name)
    for rank, line in enumerate(sorted(map(json.loads, lines), key=lambda each: each[0]["RANK"])):
        env, argv, file, folder, *rest = line
        assert env["RANK"] == str(rank) and env["WORLD_SIZE"] == "4"
        assert env["LOCAL_RANK"] == str(rank % 2) and env["LOCAL_WORLD_SIZE"] == "2"
        assert env["NODE_RANK"] == env["GROUP_RANK"] == str(rank // 2)
        assert argv == [path, "--lr", "0.1", "nodes=3", "-h"]
        assert (file, folder) == (path, str(script.folder))
        assert rest == ["of a module beside it", True, True, True]


def test_a_document_alone_is_on_stdout(script):
    name = script(
        "import os, skyward_nb as sky, sys\n"
        "print('out'); print('err', file=sys.stderr)\n"
        "sky.log(loss=float(os.environ['RANK']), bad=float('nan'))\n"
    )
    ran = run(script, "--json", "nodes=2", "pool=p", name)
    assert ran.code == 0, ran.stderr
    end = msgspec.json.decode(ran.stdout, type=ScriptEnd)
    assert json.loads(msgspec.json.encode(end)) == ran.json
    assert (end.script, end.pool, end.state, end.exit_code) == (name, "p", "finished", 0)
    assert end.run.startswith("p-") and end.run.endswith("/1") and end.seconds > 0
    assert [(each.rank, each.node, each.state) for each in end.ranks] == [
        (0, 0, "done"),
        (1, 1, "done"),
    ]
    assert [each.metrics for each in end.ranks] == [
        {"loss": 0.0, "bad": None},
        {"loss": 1.0, "bad": None},
    ]
    assert not (end.failures or end.died or end.traceback)
    assert said(ran.stderr)["out"] == said(ran.stderr)["err"] == BOTH
    assert "finished in" in ran.stderr


def test_what_a_process_does_at_its_end_is_done(script):
    name = script(
        "import atexit, concurrent.futures, multiprocessing, threading, time\n"
        "held = open('held.txt', 'w'); held.write('kept'); loop = [held]; loop.append(loop)\n"
        "executor = concurrent.futures.ThreadPoolExecutor(1)\n"
        "def later(what):\n"
        "    time.sleep(0.2)\n"
        "    print(what, flush=True)\n"
        "atexit.register(print, 'last')\n"
        "atexit.register(lambda: 1 / 0)\n"
        "@atexit.register\n"
        "def first(): print('first')\n"
        "def never(): print('never')\n"
        "atexit.register(never); atexit.unregister(never)\n"
        "if __name__ == '__main__':\n"
        "    print('main', flush=True)\n"
        "    executor.submit(later, 'executor')\n"
        "    threading.Thread(target=later, args=['thread']).start()\n"
        "    multiprocessing.Process(target=later, args=['child']).start()\n"
    )
    ran = run(script, name)
    assert ran.code == 0, ran.stderr
    said = [line.removeprefix("[rank 0] ") for line in ran.stdout.splitlines()]
    assert said[0] == "main" and said[-2:] == ["first", "last"]
    assert sorted(said[1:-2]) == ["child", "executor", "thread"]
    assert "ZeroDivisionError" in ran.stderr
    assert (script.folder / "held.txt").read_text() == "kept"


def test_a_script_finds_no_notebook(script):
    name = script(
        "try:\n    get_ipython\nexcept NameError:\n    print('none')\nimport IPython\nquit()\n"
    )
    ran = run(script, "quiet", name)
    assert ran.code == 0 and ran.stdout == "" and ran.stderr == ""
    ran = run(script, "stdout=0", "nodes=2", name)
    assert ran.stdout == "[rank 0] none\n"


def test_a_folder_with_a_main(script):
    script("import part\nprint(part.NAME, __name__)", "app/__main__.py")
    script("NAME = 'part of it'", "app/part.py")
    ran = run(script, "app", "x")
    assert ran.stdout == "[rank 0] part of it __main__\n", ran


def test_defaults_shape_the_pool(script):
    script("[tool.skyward]\nnodes = 3\n", "pyproject.toml")
    name = script("import os; print(os.environ['WORLD_SIZE'], os.environ['MINE'])")
    ran = run(script, name, SKYWARD_ENV="MINE=1")
    assert said(ran.stdout) == {"3 1": [0, 1, 2]}, ran
    ran = run(script, "nodes=1", "env=MINE=2", name, SKYWARD_ENV="MINE=1")
    assert ran.stdout == "[rank 0] 1 2\n", ran


# ── other ends ──────────────────────────────────────────────────────────────────────────


def test_an_exception_is_shown_as_python_shows_it_and_ends_with_1(script):
    name = script(
        "import os\n"
        "def fail():\n"
        "    raise ValueError('boom')\n"
        "if os.environ['RANK'] == '1':\n"
        "    fail()\n"
    )
    ran = run(script, "nodes=2", "--json", name)
    assert ran.code == 1
    path = script.folder / name
    assert ran.json["traceback"] == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 5, in <module>',
        "    fail()",
        *["    ~~~~^^"] * (sys.version_info >= (3, 13)),
        f'  File "{path}", line 3, in fail',
        "    raise ValueError('boom')",
        "ValueError: boom",
        f"raised on rank 1 of 2, {name}, line 3: raise ValueError('boom')",
    ]
    assert "\n".join(ran.json["traceback"]) in ran.stderr
    (failure,) = ran.json["failures"]
    assert (failure["ranks"], failure["where"], failure["line"]) == ([1], name, 3)
    assert (ran.json["state"], ran.json["exit_code"]) == ("failed", 1)
    assert "skyward_nb" not in ran.stderr and "runpy" not in ran.stderr


@pytest.mark.parametrize(
    ("last", "code", "says"),
    [
        ("sys.exit(0)", 0, ""),
        ("sys.exit()", 0, ""),
        ("exit(3)", 3, ""),
        ("sys.exit('no good')", 1, "no good"),
        ("sys.exit(1.5)", 1, "1.5"),
        ("os._exit(7)", 1, "exited with code 7"),
        ("os.kill(os.getpid(), 9)", 1, "killed by SIGKILL"),
    ],
)
def test_exit_codes(script, last, code, says):
    name = script(f"import os, sys\n{last}\nprint('never')\n")
    ran = run(script, "nodes=2", "on_error=wait", name)
    assert ran.code == code, ran
    assert says in ran.stderr and not ran.stdout
    assert "Traceback" not in ran.stderr
    if says in ("no good", "1.5"):
        assert said(ran.stderr)[says] == BOTH


def test_the_rank_that_failed_first_counts_and_the_others_are_stopped(script):
    name = script(
        "import os, sys, time\nif os.environ['RANK'] == '2': sys.exit(5)\ntime.sleep(60)\n"
    )
    ran = run(script, "nodes=3", "--json", name)
    assert ran.code == 5 and ran.json["exit_code"] == 5
    assert [each["ranks"] for each in ran.json["failures"]] == [[2]]
    assert {each["rank"]: each["state"] for each in ran.json["ranks"]} == {
        0: "stopped",
        1: "stopped",
        2: "failed",
    }


def test_a_script_that_takes_too_long(script):
    name = script("import time\nwhile True:\n    time.sleep(0.1)\n")
    ran = run(script, "timeout=0.5s", name)
    assert ran.code == 1
    assert "after 0.5 s rank 0 was in train.py, line 3: time.sleep(0.1)" in ran.stderr
    assert "<%sky>" not in ran.stderr


def test_what_is_no_python_is_told_before_anything_starts(script):
    before = traces()
    ran = run(script, "nodes=2", script("x = = 1\n"))
    assert ran.code == 1 and traces() == before
    assert ran.stderr.splitlines()[0].strip() == 'File "train.py", line 1'
    assert "SyntaxError" in ran.stderr and "Starting" not in ran.stderr


def test_a_syntax_error_in_a_module_reads_as_python_shows_it(script):
    script("y = = 2\n", "beside.py")
    ran = run(script, script("import beside\n"))
    assert ran.code == 1
    assert f'  File "{script.folder / "train.py"}", line 1, in <module>' in ran.stderr
    assert f'  File "{script.folder / "beside.py"}", line 1' in ran.stderr
    assert "SyntaxError: invalid syntax" in ran.stderr


def said_by_both(lines):
    """Whether both ranks have said that they began, or nothing more comes."""
    text = "".join(lines)
    return ("begun 0" in text and "begun 1" in text) or not lines[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_stops_the_script_and_takes_the_pool_down(script, number):
    name = script(
        "import atexit, os, time\natexit.register(print, 'tidied')\n"
        "print('begun', os.environ['RANK'], flush=True)\ntime.sleep(60)\nprint('never')\n"
    )
    with begun("run", "nodes=2", "--json", name, folder=script.folder) as process:
        heard = []
        until(lambda: heard.append(process.stderr.readline()) or said_by_both(heard))
        process.send_signal(number)
        ran = ended(process)
    assert ran.code == 130, ran
    assert (ran.json["state"], ran.json["exit_code"]) == ("interrupted", 130)
    assert said(ran.stderr)["tidied"] == BOTH and "never" not in ran.stderr
    assert "Interrupted on ranks 0-1 · " in ran.stderr and "Traceback" not in ran.stderr


def test_a_second_interrupt_ends_what_does_not_stop(script):
    name = script(
        "import time\n"
        "while True:\n    try: print('begun', flush=True); time.sleep(60)\n"
        "    except KeyboardInterrupt: print('no', flush=True)\n"
    )
    with begun("run", "grace=60s", name, folder=script.folder) as process:
        until(lambda: "begun" in process.stdout.readline())
        process.send_signal(signal.SIGINT)
        until(lambda: "no" in process.stdout.readline())
        process.send_signal(signal.SIGINT)
        ran = ended(process)
    assert ran.code == 130, ran
    assert "rank 0 did not stop and had to be killed" in ran.stderr


def test_an_interrupt_while_the_pool_starts_leaves_nothing(script):
    name = script("print('never')")
    script(
        "import sys, time\nif 'skyward_nb.node' in sys.orig_argv: time.sleep(5)\n",
        "slow/sitecustomize.py",
    )
    path = os.pathsep.join((str(script.folder / "slow"), os.environ.get("PYTHONPATH", "")))
    words = "run", "--json", "nodes=2", name
    with begun(*words, folder=script.folder, PYTHONPATH=path) as process:
        until(lambda: "Starting" in process.stderr.readline())
        process.send_signal(signal.SIGINT)
        ran = ended(process)
    assert ran.code == 130, ran
    assert ran.json == {"error": {"type": "KeyboardInterrupt", "message": "interrupted"}}


def test_one_that_is_killed_leaves_a_pool_that_is_told_and_taken_down(script):
    name = script("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    with begun("run", "nodes=2", "pool=p", name, folder=script.folder) as process:
        until(lambda: "begun" in process.stdout.readline())
        said = sky("status").stdout
        assert f"in use by skyward-nb run {name} (process {process.pid})" in said
        assert f"{name} has been running for" in said
        ran = sky("run", "pool=p", name, folder=script.folder)
        assert ran.code == 1 and "pool 'p' is in use by skyward-nb run train.py" in ran.stderr
        said = sky("check", "hang").stdout
        assert f"pool p of skyward-nb run {name}: {name} has run for" in said
        assert f"ranks 0-1 are in {name}, line 3: time.sleep(60)" in said
        process.kill()
        process.wait()
    until(lambda: f"left by skyward-nb run {name}, ends itself in" in sky("status").stdout)
    ran = sky("run", "pool=p", name, folder=script.folder)
    assert ran.code == 1 and "train.py has been running for" in ran.stderr
    assert sky("down", "p").stdout == "pool p is down: 2 ranks ended, nothing left running\n"


def test_nobody_reads(script):
    name = script(
        "import os\nfor i in range(200): print(os.environ['RANK'], i)\nprint('x' * 200_000)\n"
    )
    line = f"{' '.join(COMMAND)} run nodes=2 {name} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=script.folder,
        capture_output=True,
        text=True,
    )
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
    line = f"{' '.join(COMMAND)} logs | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


# ── pools that stay ─────────────────────────────────────────────────────────────────────


def test_a_pool_that_is_kept_serves_the_next_script_in_fresh_processes(script):
    script("value = 1", "beside.py")
    name = script(
        "import beside, os\n"
        "fresh = 'SEEN' not in os.environ\n"
        "os.environ['SEEN'] = '1'\n"
        "print(beside.value, fresh, os.getcwd())\n"
    )
    ran = run(script, "nodes=2", "keep", "pool=warm", name)
    assert said(ran.stdout) == {f"1 True {script.folder}": BOTH}, ran
    assert "left by skyward-nb run train.py, ends itself in" in sky("status").stdout
    script(
        "value = 20", "beside.py"
    )  # another size: a .pyc knows its source by that and by the second
    other = script.folder / "elsewhere"
    other.mkdir()
    ran = sky("run", "pool=warm", f"../{name}", folder=other)
    assert said(ran.stdout) == {f"20 True {other}": BOTH}, ran
    assert "Starting" not in ran.stderr
    ran = run(script, "pool=warm", script("1/0", "bad.py"))
    assert ran.code == 1 and "ZeroDivisionError" in ran.stderr
    ran = run(script, "pool=warm", name)
    assert said(ran.stdout) == {f"20 True {script.folder}": BOTH}, ran
    ran = run(script, "pool=warm", "nodes=5", name)
    assert ran.code == 1 and "is up with nodes=2" in ran.stderr
    ran = run(script, name)
    assert ran.stdout == f"[rank 0] 20 True {script.folder}\n", "one of its own"
    assert sky("down", "warm").code == 0


def test_a_pool_of_somebody_else_stays_and_names_that_go_are_told(script, make):
    pool = make()
    values(pool, "kept, other = 1, 2\n1")
    pool.seen()
    before = set(pool.pids.values())
    pool.leave()
    ran = run(script, "pool=default", script("print('here')"))
    assert said(ran.stdout) == {"here": BOTH}, ran
    assert "gone with the ranks there were: kept, other" in ran.stderr
    (entry,) = registry.entries()
    now = registry.condition(entry)
    assert now.client is None and now.unseen is None
    assert len(now.pids) == 2 and not {*now.pids.values()} & before
    again = found(pool)
    again.attach(lambda _: None)
    assert values(again, "1") == [1, 1]
    again.close()


def test_the_processes_of_a_script_are_gone_after_it_where_the_pool_stays(script):
    name = script(
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
    )
    ran = run(script, "keep", "pool=p", name)
    pids = [int(word) for word in ran.stdout.removeprefix("[rank 0] ").split()]
    assert len(pids) == 2
    until(lambda: not any(map(psutil.pid_exists, pids)))
    assert sky("down").code == 0


# ── frameworks ──────────────────────────────────────────────────────────────────────────


@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("framework", ["none", "torch", "auto"])
def test_a_training_script_for_torchrun(script, framework):
    name = script(
        "import torch, torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "dist.init_process_group('gloo')\n"
        "torch.manual_seed(dist.get_rank())\n"
        "model = DDP(torch.nn.Linear(4, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(3):\n"
        "    loss = model(torch.full((8, 4), dist.get_rank() + 1.0)).pow(2).mean()\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "weights = [torch.zeros(1, 4) for _ in range(dist.get_world_size())]\n"
        "dist.all_gather(weights, model.module.weight.detach())\n"
        "print(dist.get_world_size(), all(torch.equal(weights[0], each) for each in weights))\n"
        "dist.destroy_process_group()\n"
    )
    ran = run(script, "nodes=2", f"framework={framework}", name)
    assert ran.code == 0, ran.stderr
    assert said(ran.stdout) == {"2 True": BOTH}
    chosen = "framework=auto: torch (the script imports torch)"
    assert (chosen in ran.stderr) == (framework == "auto")


@needs_torch
@pytest.mark.torch
def test_a_rank_that_fails_frees_the_others_from_a_collective(script):
    name = script(
        "import torch, torch.distributed as dist\n"
        "import os, time\n"
        "if dist.get_rank() == 1:\n"
        "    while not os.path.exists('there'): time.sleep(0.02)\n"
        "    time.sleep(0.3)\n"
        "    raise RuntimeError('no data')\n"
        "open('there', 'w').close()\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    ran = run(script, "nodes=2", "framework=torch", "grace=30s", name)
    assert ran.code == 1
    assert "RuntimeError: no data" in ran.stderr
    assert "rank 0, which waited in all_reduce" in ran.stderr
    assert "generation" not in ran.stderr
