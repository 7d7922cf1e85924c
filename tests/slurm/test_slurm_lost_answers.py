"""A job whose submission Slurm did not answer may appear later: it is cancelled then; and one that does not go although
it was cancelled is named. Without a cluster."""

import asyncio
import time
from types import SimpleNamespace

import msgspec
import pytest

from skyward_nb.bootstrap.remote_shell import ScriptResult
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.provider_protocol import ReplacementRequest
from skyward_nb.providers.slurm import allocation
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.controller import SlurmController
from skyward_nb.providers.slurm.job_machines import replaced
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.slurm_machine import SlurmMachine, line_to
from skyward_nb.words.errors import NodesRefused
from skyward_nb.words.provider_access import SlurmAccess
from skyward_nb.words.spec import PoolSpec

SPEC = PoolSpec(name="p", provider="slurm", nodes=2, slurm=SlurmAccess())


class Slurm:
    """A shell of a login node: `jobs` are names by their ids, and sbatch does not answer."""

    name = "login"

    def __init__(self):
        self.jobs = {"1": "skyward-p-1"}
        self.cancelled = []
        self.has_room = True
        self.stays = ()
        self.completing = None
        """Nodes that a job which was cancelled keeps, by the looks at it; the last ones stay."""
        self.looks = 0

    async def run(self, script, **_):
        words = script.rpartition("exec ")[2].split()
        if words[0] == "sbatch" and not self.has_room:
            return ScriptResult(71, b"", "mkdir: cannot create directory: Disk quota exceeded")
        if words[0] == "sbatch":
            return ScriptResult(1, b"", "sbatch: error: Socket timed out on send/recv operation")
        if words[0] == "squeue":
            return ScriptResult(0, self.queue(words).encode(), "")
        if words[0] == "scancel":
            if any(each in words for each in self.stays):
                return ScriptResult(1, b"", "scancel: error: Socket timed out")
            for job in [job for job in self.jobs if self.is_meant(job, words)]:
                del self.jobs[job]
                self.cancelled.append(job)
        return ScriptResult(0, b"", "")

    def is_meant(self, job, words):
        meant = (job, f"--jobs={job}", f"--name={self.jobs[job]}")
        return any(each in words for each in meant)

    def queue(self, words):
        if '"%i' in words:
            return "".join(f"{job} {name}\n" for job, name in self.jobs.items())
        if self.completing and self.cancelled:
            self.looks += 1
            nodes = self.completing.pop(0) if len(self.completing) > 1 else self.completing[0]
            return f"{self.cancelled[0]}|COMPLETING|gpu|||||{nodes}|None\n" * bool(nodes)
        return "".join(
            f"{job}|RUNNING|gpu|||||c[1-2]|None\n" for job in self.jobs if self.is_meant(job, words)
        )


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "runtime"))


def record(**fields):
    made = JobRecord(pool_id="p-1", maker=MakerProcess.this(), access=SPEC.slurm, listing="/no/such",
                     job="1", nodes=("c1", "c2"), **fields)  # fmt: skip
    made.write()
    return made


async def _replace(slurm):
    made = Allocation(record(), SlurmController(slurm))
    lost = tuple(
        SlurmMachine("p", number, line_to(made.record, node), made)
        for number, node in enumerate(made.record.nodes)
    )
    with pytest.raises(NodesRefused, match="Socket timed out"):
        await replaced(
            SPEC, "p-1", ReplacementRequest(lost, "preempted"), lambda _: None, lambda _: None
        )
    return made


def test_a_replacement_of_which_the_answer_was_lost_is_looked_for_after_the_pools_end():
    slurm = Slurm()

    async def play():
        made = await _replace(slurm)
        assert slurm.jobs == {"1": "skyward-p-1"}
        assert not await made.give_back()

    asyncio.run(play())
    assert slurm.cancelled == ["1"]
    (left,) = JobRecord.every()
    assert (left.job, left.is_left) == ("1", True)
    slurm.jobs = {"7": "skyward-p-1", "8": "another"}  # it appears
    assert asyncio.run(Allocation(left, SlurmController(slurm)).end_orphan())
    assert slurm.jobs == {"8": "another"}


def test_one_that_was_there_meanwhile_is_cancelled_at_once_and_the_pools_job_is_not():
    slurm = Slurm()
    slurm.jobs |= {"7": "skyward-p-1", "8": "another"}
    asyncio.run(_replace(slurm))
    assert slurm.jobs == {"1": "skyward-p-1", "8": "another"}
    (kept,) = JobRecord.every()
    assert (kept.job, kept.before, bool(kept.lost)) == ("1", "", True)


def test_a_job_that_took_its_place_is_all_that_is_left():
    slurm = Slurm()
    slurm.jobs |= {"7": "skyward-p-1", "9": "skyward-p-1"}
    made = Allocation(
        msgspec.structs.replace(record(), job="9", before="1"), SlurmController(slurm)
    )
    assert not asyncio.run(made.end_before())
    assert slurm.jobs == {"9": "skyward-p-1"}
    assert JobRecord.every()[0].before == ""


def test_where_sbatch_was_never_asked_there_is_no_job_to_look_for():
    slurm = Slurm()
    slurm.has_room = False
    made = Allocation(record(), SlurmController(slurm))
    with pytest.raises(NodesRefused, match="Disk quota exceeded") as refused:
        asyncio.run(made.begin(SPEC, lambda _: None))
    assert "sweep" not in str(refused.value)
    assert made.record.lost == 0


def test_one_that_cannot_be_cancelled_keeps_no_other_one():
    slurm = Slurm()
    slurm.jobs |= {"7": "skyward-p-1", "9": "skyward-p-1"}
    slurm.stays = ("1", "--jobs=1")
    made = Allocation(
        msgspec.structs.replace(record(), job="9", before="1"), SlurmController(slurm)
    )
    assert asyncio.run(made.end_before()) == "job 1"
    assert slurm.jobs == {"1": "skyward-p-1", "9": "skyward-p-1"}


# ── what does not go ────────────────────────────────────────────────────────────────────


def test_one_that_completes_for_a_while_is_waited_for():
    slurm, made = Slurm(), record()
    slurm.completing = ["c[1-2]", "c[1-2]", "c2", ""]
    assert not asyncio.run(Allocation(made, SlurmController(slurm)).give_back())
    assert slurm.completing == [""]
    assert not JobRecord.every()


def test_one_that_completes_for_long_is_named_with_its_nodes_and_what_to_type(monkeypatch):
    monkeypatch.setattr(allocation, "_END_LIMIT", 0.2)
    slurm, made = Slurm(), record()
    slurm.completing = ["c[1-2]", "c2"]
    # That time is over at the second look: the first one may come late.
    clock = SimpleNamespace(time=time.time, monotonic=lambda: 0.15 * slurm.looks)
    monkeypatch.setattr(allocation, "time", clock)
    with pytest.warns(
        UserWarning, match=r"still in the queue .*`squeue -j 1`.*`scontrol show node c2`"
    ):
        assert (
            asyncio.run(Allocation(made, SlurmController(slurm)).give_back())
            == "job 1 (COMPLETING on c2)"
        )
    (left,) = JobRecord.every()
    assert left.is_left
    # There is nothing more to cancel: the next pool forgets it.
    assert not asyncio.run(Allocation(left, SlurmController(slurm)).end_orphan())


def test_one_that_still_runs_is_named_too(monkeypatch):
    monkeypatch.setattr(allocation, "_END_LIMIT", 0.2)
    slurm = Slurm()
    slurm.is_meant = lambda job, words: words[0] == "squeue" and job == "1"
    with pytest.warns(UserWarning, match=r"`scancel 1` cancels it again"):
        left = asyncio.run(Allocation(record(), SlurmController(slurm)).give_back())
    assert left == "job 1 (RUNNING on c[1-2])"
