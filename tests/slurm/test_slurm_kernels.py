"""A kernel that is killed leaves its pool on Slurm, and another kernel goes on with it."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from kernels import kernel
from leaks import places
from slow import LINES, Slow, said
from waiting import until

from skyward_nb.providers.slurm.job_records import JobRecord

pytestmark = [pytest.mark.extensive, pytest.mark.timeout(300)]


_TELLS = "import os\nopen(f'{told}/begun-' + os.environ['RANK'], 'w').close()\n"


def attached(other):
    """How `%sky attach` ran there, once a kernel that has ended no longer holds the pool."""
    ran = other.run("%sky attach")
    is_held = ran.status == "error" and "it is free within" in ran.error[1]
    return None if is_held else ran


def test_another_kernel_goes_on_with_the_pool_of_one_that_was_killed(cluster, no_leaks, tmp_path):
    told, slow = tmp_path, Slow(tmp_path / "told")
    meant = f"import skyward_nb as sky\nhere = sky.Image(interpreter={sys.executable!r})"
    # Of the environment here nodes have these folders alone.
    folders = {**places(), "SKYWARD_CACHE_DIR": os.environ["SKYWARD_CACHE_DIR"]}
    given = ",".join(f"{name}={place}" for name, place in folders.items())
    line = f"provider=slurm nodes=2 image=here extra=--export={given}"
    with (
        kernel(JPY_SESSION_NAME="work/train.ipynb") as first,
        kernel(JPY_SESSION_NAME="other.ipynb") as other,
    ):
        assert first.run(meant).status == "ok"
        first.begin(f"%%sky_remote {line} out=got\n{_TELLS.format(told=told)}{slow}")
        until(lambda: {*told.glob("begun-?")} == {told / "begun-0", told / "begun-1"})
        (job,) = [each.job for each in JobRecord.every()]
        assert cluster.queue() == [f"{job} RUNNING"]
        refused = other.run("%sky attach")
        assert "in use by the kernel of work/train.ipynb" in refused.error[1]
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not first.manager.is_alive())
        slow.may_end()
        ran = until(lambda: attached(other))
        assert ran.status == "ok", ran.traceback
        assert said(ran.picture) == LINES
        assert other.run("got.head").result == "'the end'"
        where = "import os\nkept, os.environ['SLURM_JOB_ID'], os.environ['SLURMD_NODENAME']"
        ran = other.run(f"%%sky_remote out=found\n{where}")
        assert ran.status == "ok", ran.traceback
        found = other.run("print([each for each in found])").stdout
        assert found.strip() == str([(5, job, "c1"), (5, job, "c2")])
        assert cluster.queue() == [f"{job} RUNNING"]
        ended = other.run("%sky down")
        assert ended.status == "ok", ended.traceback
        assert cluster.is_empty()
        assert not JobRecord.every()
        until(lambda: not cluster.processes(job))
