"""Taking down, whatever the engine: tried again, kept on record where it is not sure, swept by the next pool."""

import asyncio
import os
import socket
import time
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from skyward_nb.protocol.events import Phase, Remark
from skyward_nb.providers.far import take_down
from skyward_nb.providers.far.engine_record import EngineRecord
from skyward_nb.providers.far.take_down import EngineFault, end_orphans, swept_first, taken_down
from skyward_nb.providers.kubernetes.cluster import ClusterSilent
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.kubernetes.pod_states import JobView
from skyward_nb.providers.kubernetes.pool_job import PoolJob
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.ray.group import NodeGroup
from skyward_nb.providers.ray.group_records import GroupRecord
from skyward_nb.providers.ray.messages import GroupLeft
from skyward_nb.providers.ray.ray_errors import RaySilent
from skyward_nb.providers.skypilot.cli_answers import ClusterState
from skyward_nb.providers.skypilot.cluster_records import ClusterRecord
from skyward_nb.providers.skypilot.sky_cluster import RentedCluster
from skyward_nb.providers.skypilot.sky_program import SkySilent
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.controller import SlurmSilent
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.words.errors import OptionError, StartError
from skyward_nb.words.provider_access import RayAccess, SkyPilotAccess, SlurmAccess
from skyward_nb.words.spec import PoolSpec

LOST = "its answer was lost"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(take_down, "PAUSE", 0.0)


def noted(kind=PodRecord, **fields):
    record = kind(pool_id="p-1", maker=MakerProcess.this(), listing="/no/such", **fields)
    record.write()
    return record


def answers(*said):
    """Something that is awaited, and gives or raises these in turn, the last one for good."""
    left = [*said]

    async def answer(*_args, **_named):
        answer.calls += 1
        each = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(each, Exception):
            raise each
        return each

    answer.calls = 0
    return answer


async def nothing(*_args):
    return None


def down(attempt):
    (record,) = PodRecord.every()
    return asyncio.run(taken_down(record, "Job j", attempt, "It ends by itself. "))


NO_DESCRIPTORS = OSError(24, "Too many open files")
ANOTHERS_FOLDER = OptionError("login", "its folder is another user's")


@pytest.mark.parametrize("fault", [EngineFault(LOST), NO_DESCRIPTORS, ANOTHERS_FOLDER], ids=repr)
def test_one_lost_answer_is_not_the_end_of_the_attempts(fault):
    noted()
    attempt = answers(fault, "")
    assert down(attempt) == "" and attempt.calls == 2
    assert not PodRecord.every()


def test_what_is_not_sure_is_said_and_kept_for_the_next_pool_of_this_process():
    assert not noted().is_orphan
    attempt = answers(EngineFault(LOST))
    with pytest.warns(UserWarning, match="Kubernetes did not confirm the end of Job j: its answer"):
        assert down(attempt) == "Job j"
    assert attempt.calls == take_down.TRIES
    (record,) = PodRecord.every()
    assert record.is_left and record.is_orphan


def test_an_engine_that_takes_minutes_for_no_answer_is_asked_once(monkeypatch):
    monkeypatch.setattr(take_down, "AT_MOST", -1.0)
    noted()
    attempt = answers(EngineFault(LOST))
    with pytest.warns(UserWarning, match="did not confirm"):
        down(attempt)
    assert attempt.calls == 1 and PodRecord.every()[0].is_left


def test_what_is_left_although_it_was_taken_down_stays_on_record():
    noted()
    assert down(answers("pod a")) == "pod a"
    assert PodRecord.every()[0].is_left


def test_what_may_appear_later_stays_on_record_though_nothing_is_found():
    noted(lost=time.time() - 60)
    assert down(answers("")) == ""
    (record,) = PodRecord.every()
    assert record.is_left
    replace(record, lost=time.time() - 2 * 3600).write()
    assert down(answers("")) == "" and not PodRecord.every()


# ── swept ───────────────────────────────────────────────────────────────────────────────


def swept(end):
    return end_orphans(PodRecord.every(), lambda record: "Job j", end)


@pytest.mark.parametrize(
    ("said", "ended", "left", "stays"),
    [
        (True, ["Job j (pool p-1)"], [], False),
        (False, [], [], False),
        (EngineFault(LOST), [], [f"Job j (pool p-1): {LOST}"], True),
        # An earlier pool's, of which this machine cannot ask: a new one starts nevertheless.
        (NO_DESCRIPTORS, [], [f"Job j (pool p-1): {NO_DESCRIPTORS}"], True),
        (ANOTHERS_FOLDER, [], [f"Job j (pool p-1): {ANOTHERS_FOLDER}"], True),
    ],
)
def test_a_sweep_says_what_it_ended_and_what_it_could_not(said, ended, left, stays):
    noted(is_left=True)
    found = asyncio.run(swept(answers(said)))
    what = [each.partition(" (if that cluster is gone for good, `rm ")[0] for each in found.left]
    assert (found.ended, what, bool(PodRecord.every())) == (ended, left, stays)


@pytest.mark.parametrize(
    ("kind", "fields", "answer"),
    [
        (PodRecord, {}, {"pods": ("a",)}),
        (JobRecord, {"access": SlurmAccess()}, {"job": "7"}),
        (GroupRecord, {"access": RayAccess(), "count": 1}, {"nodes": ("n",)}),
        (ClusterRecord, {"access": SkyPilotAccess(), "nodes": 1}, {"is_up": True}),
    ],
)
def test_what_a_killed_process_had_no_answer_to_is_looked_for_for_a_while(kind, fields, answer):
    """Its request goes on without it: what it asked for may appear after a sweep that has found nothing."""
    now, dead = time.time(), MakerProcess(2**22 + 1, 0.0, socket.gethostname())

    def swept_after(seconds, **more):
        record = kind(pool_id="p-1", maker=dead, listing="/no/such", **fields, **more)
        record.write()
        os.utime(record.path, (now - seconds, now - seconds))
        found = asyncio.run(end_orphans(kind.every(), str, answers(False)))
        assert not found.ended and not found.left
        return kind.every()

    (kept,) = swept_after(60)
    assert kept.is_left and now - kept.lost == pytest.approx(60, abs=1)
    asyncio.run(end_orphans([kept], str, answers(False)))
    assert kind.every() == [kept]  # it is looked for no longer for that
    kept.remove()
    assert not swept_after(2 * 3600)
    assert not swept_after(60, **answer)


def test_what_another_computer_made_is_named_with_it():
    maker = MakerProcess(2**22 + 1, 0.0, "laptop-of-old", machine="another")
    PodRecord(pool_id="p-1", maker=maker, listing="/no/such").write()
    found = asyncio.run(swept(answers(True)))
    assert found.foreign == ["Job j (pool p-1), made on host laptop-of-old"]
    assert not found.ended and PodRecord.every()


def test_a_start_waits_for_a_sweep_only_so_long_and_says_so(monkeypatch):
    monkeypatch.setattr(take_down, "BESIDE", 0.01)
    noted(is_left=True)
    told = []

    async def scene():
        goes_on = asyncio.Event()

        async def end(_record):
            await goes_on.wait()
            return True

        await swept_first(swept(end), told.append)
        assert [type(each) for each in told] == [Phase, Remark]
        # Another start leaves alone what the first one is at.
        assert not (await swept(end)).ended
        goes_on.set()
        await asyncio.gather(*take_down._sweeping)
        assert not PodRecord.every()
        # This one ends while it is waited for, however long that takes.
        monkeypatch.setattr(take_down, "BESIDE", 60.0)
        noted(is_left=True)
        await swept_first(swept(answers(EngineFault(LOST))), told.append)
        assert "not confirmed to be gone: Job j (pool p-1): its answer was lost" in told[-1].text
        assert "/p-1.json` forgets it" in told[-1].text

    asyncio.run(scene())


# ── by each engine ──────────────────────────────────────────────────────────────────────


def job_of_slurm(look, cancel):
    record = noted(JobRecord, access=SlurmAccess(), job="7")
    return Allocation(record, SimpleNamespace(look=look, cancel=cancel, forget=nothing))


def job_of_kubernetes(look, cancel):
    gone = JobView(exists=False)

    async def looked(pool_id):
        await look(pool_id)
        return gone

    return PoolJob(noted(), SimpleNamespace(look=looked, delete=cancel))


@pytest.mark.parametrize(
    ("made", "silent"), [(job_of_slurm, SlurmSilent), (job_of_kubernetes, ClusterSilent)]
)
def test_one_look_that_fails_does_not_keep_a_job_from_being_ended(made, silent):
    cancel = answers(None)
    job = made(answers(silent(LOST), None), cancel)
    job.was_told = True
    assert asyncio.run(job.give_back()) == ""
    assert cancel.calls
    assert not JobRecord.every() and not PodRecord.every()


def test_all_engines_keep_what_is_not_sure():
    group = noted(GroupRecord, access=RayAccess(), count=2)
    cluster = RentedCluster(noted(ClusterRecord, access=SkyPilotAccess(), nodes=1))
    cluster.program = SimpleNamespace(down=answers(SkySilent(LOST)))
    helper = SimpleNamespace(ask=answers(RaySilent(LOST)), let_go=nothing)
    with pytest.warns(UserWarning, match="The next pool, or `%sky sweep`, ends it again"):
        assert asyncio.run(NodeGroup(group, helper).give_back()) == "placement group skyward-p-1"
        assert asyncio.run(cluster.take_down()) == "cluster skyward-p-1"
        slurm = job_of_slurm(answers(None), answers(SlurmSilent(LOST)))
        assert asyncio.run(slurm.give_back()) == "job 7"
    for kind in (GroupRecord, ClusterRecord, JobRecord):
        (record,) = kind.every()
        assert issubclass(kind, EngineRecord) and record.is_orphan


@pytest.mark.parametrize("was_there", [True, False])
def test_what_was_there_no_more_is_not_said_to_be_ended(was_there):
    noted(GroupRecord, access=RayAccess(), count=2)
    helper = SimpleNamespace(ask=answers(GroupLeft([], was_there)), let_go=nothing)
    assert asyncio.run(NodeGroup(GroupRecord.every()[0], helper).end_orphan()) is was_there
    cluster = RentedCluster(noted(ClusterRecord, access=SkyPilotAccess(), nodes=1))
    state = ClusterState("skyward-p-1", "UP") if was_there else None
    cluster.program = SimpleNamespace(look=answers(state, None), down=answers(""))
    assert asyncio.run(cluster.end_orphan()) is was_there
    assert cluster.program.down.calls == 1


def test_a_job_whose_submission_was_not_answered_is_looked_for_by_the_next_pool():
    allocation = job_of_slurm(answers(None), answers(None))
    allocation.record = replace(allocation.record, job="")
    allocation.controller.submit = answers(SlurmSilent(LOST))
    spec = PoolSpec(name="p", provider="slurm", slurm=SlurmAccess())
    with pytest.raises(StartError, match="is cancelled by the next pool"):
        asyncio.run(allocation.begin(spec, lambda _: None))
    assert asyncio.run(allocation.give_back()) == ""
    (record,) = JobRecord.every()
    assert record.is_orphan and record.may_appear(time.time())
