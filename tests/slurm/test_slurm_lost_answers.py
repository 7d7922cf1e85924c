"""A job whose submission Slurm did not answer may appear later: it is cancelled then. Without a cluster."""

import asyncio

import msgspec
import pytest

from skyward_nb.bootstrap.remote_shell import ScriptResult
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.provider_protocol import ReplacementRequest
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.controller import SlurmController
from skyward_nb.providers.slurm.job_machines import replaced
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.slurm_machine import SlurmMachine, line_to
from skyward_nb.words.errors import NodesRefused
from skyward_nb.words.slurm_access import SlurmAccess
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
