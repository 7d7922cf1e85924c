"""`skyward-nb run` on pools that stay, and with frameworks."""

from __future__ import annotations

import psutil
import pytest
from later import needs
from pools import found, values
from terminals import said, sky, status_with
from tiers import few
from waiting import until

from skyward_nb.pool import registry

needs_torch = needs("torch")


BOTH = [0, 1]


def run(script, *words, **env):
    return sky("run", *words, folder=script.folder, **env)


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
    status_with("left by skyward-nb run train.py, ends itself in")
    # Of another size: a .pyc knows its source by that and by the second.
    script("value = 20", "beside.py")
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


@pytest.mark.extensive
def test_a_pool_of_somebody_else_stays_and_names_that_go_are_told(script, make):
    pool = make()
    values(pool, "kept, other = 1, 2\n1")
    pool.seen()
    before = set(pool.pids.values())
    pool.leave()
    ran = run(script, "pool=default", script("print('here')"))
    assert said(ran.stdout) == {"here": BOTH}, ran
    assert "lost with the earlier ranks: kept, other" in ran.stderr
    (entry,) = registry.entries()
    now = registry.condition(entry)
    assert now.client is None and now.unseen is None
    assert len(now.pids) == 2 and not {*now.pids.values()} & before
    again = found(pool)
    again.attach(lambda _: None)
    assert values(again, "1") == [1, 1]
    used = set(again.pids.values())
    again.seen()
    again.leave()
    ran = run(script, "pool=default", script("print('here')"))
    assert said(ran.stdout) == {"here": BOTH} and "lost with" not in ran.stderr, ran
    assert not {*registry.condition(entry).pids.values()} & used, "used, though it left no names"
    fresh = {*registry.condition(entry).pids.values()}
    last = found(pool)
    last.attach(lambda _: None)
    assert not last.lifecycle.found_used
    assert {*last.pids.values()} == fresh
    last.close()


@pytest.mark.extensive
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


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("framework", few(1, ["auto", "none", "torch"]))
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


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
def test_a_rank_that_fails_frees_the_others_from_a_collective(script):
    name = script(
        "import torch, torch.distributed as dist\n"
        "import os, sys, threading, time\n"
        "from skyward_nb.system.thread_frames import looking\n"
        "if dist.get_rank() == 1:\n"
        "    while not os.path.exists('there'): time.sleep(0.02)\n"
        "    raise RuntimeError('no data')\n"
        "def tell_once_it_waits(thread, names=()):\n"
        "    while 'all_reduce' not in names:\n"
        "        time.sleep(0.02)\n"
        "        with looking():\n"
        "            frame, names = sys._current_frames()[thread], []\n"
        "            while frame is not None:\n"
        "                names.append(frame.f_code.co_name)\n"
        "                frame = frame.f_back\n"
        "    open('there', 'w').close()\n"
        "telling = threading.Thread(target=tell_once_it_waits, args=[threading.get_ident()], daemon=True)\n"
        "telling.start()\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    ran = run(script, "nodes=2", "framework=torch", "grace=30s", name)
    assert ran.code == 1
    assert "RuntimeError: no data" in ran.stderr
    assert "rank 0, which waited in all_reduce" in ran.stderr
    assert "generation" not in ran.stderr
