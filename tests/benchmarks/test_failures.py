"""How long a failure keeps a person waiting, beside torchrun: `make bench`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest
from contenders import RANKS
from jupyter_client.manager import KernelManager
from kernels import Kernel
from test_output import kernel

GRACE = 2.0
ROUNDS = 5
STUCK = """
import time, torch
import torch.distributed as dist
t = torch.ones(4)
dist.all_reduce(t)
if dist.get_rank() == 2:
    time.sleep(0.5)
    open('{path}', 'w').write(str(time.time()))
    raise ValueError('no')
dist.all_reduce(t)
"""


def raised_at(path: Path) -> float:
    """When rank 2 raised."""
    return float(path.read_text())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [RANKS, 16])
def test_a_rank_fails(figure, tmp_path, ranks):
    path = tmp_path / "raised"
    told = []
    with kernel(f"%load_ext skyward_nb\n%sky up nodes={ranks} framework=torch") as running:
        for _ in range(ROUNDS):
            ran = running.run("%%sky_remote\n" + STUCK.format(path=path))
            told.append(time.time() - raised_at(path))
            assert ran.error is not None
            assert ran.error[0] == "ValueError"
            assert running.run("%%sky_remote\ndist.all_reduce(t)\n1").status == "ok"
        running.run("%sky down")
    value = f"skyward_nb {median(told):.2f} s (median of {ROUNDS}; the ranks go on)"
    if ranks == RANKS:
        value += f"  torchrun {median(torchrun_ends(path)):.2f} s (all processes ended)"
    limit = 1 + GRACE
    what = f"a rank of {ranks} raises while the others wait in all_reduce → the error is shown"
    figure(what, value, f"{limit:g} s (1 s + grace)", median(told) <= limit)


def torchrun_ends(path: Path) -> list[float]:
    """Seconds from the exception of one rank to the end of torchrun."""
    script = path.with_name("stuck.py")
    script.write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
        + STUCK.format(path=path)
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={RANKS}", str(script)]
    ends = []
    for _ in range(3):
        subprocess.run(command, capture_output=True, check=False, env={**os.environ})
        ends.append(time.time() - raised_at(path))
    return ends


@pytest.mark.timeout(300)
def test_reattach(figure):
    """A kernel is killed while 100 MB of output lie in the agent's log."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    running = Kernel(manager)
    line = "x" * 96
    body = (
        f"for i in range(262144): print(i, '{line}')\nprint('printed')\nimport time; time.sleep(30)"
    )
    try:
        running.run(f"%load_ext skyward_nb\n%sky up nodes={RANKS}")
        message = running.begin(f"%%sky_remote ranks=0 detach\n{body}")
        running.finish(message)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            said = running.run("%sky logs lines=1").stdout
            if "printed" in said:
                break
        running.restart(by_kill=True)
        began = time.monotonic()
        first: list[float] = []
        whole: list[float] = []

        def update(text: str) -> None:
            first.append(time.monotonic() - began)
            if "printed" in text:
                whole.append(time.monotonic() - began)

        running.run("h = %sky attach\nh.wait(8)", 60, on_update=update)
        running.run("%sky down")
    finally:
        running.client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()
    value = f"first picture {first[0]:.2f} s, all of it {whole[0]:.2f} s"
    what = "attach to a run with 100 MB of logged output"
    figure(what, value, "1 s to the first picture", first[0] <= 1.0)
