"""Records of what engines were asked for: kept, found again, and whose pool nobody can find."""

from __future__ import annotations

import pytest

from skyward_nb.providers import maker_process
from skyward_nb.providers.far.engine_record import listing_of
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.ray.group_records import GroupRecord
from skyward_nb.providers.skypilot.cluster_records import ClusterRecord
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.words.provider_access import RayAccess, SkyPilotAccess, SlurmAccess

KINDS = [
    (PodRecord, {}),
    (GroupRecord, {"access": RayAccess(), "count": 2}),
    (ClusterRecord, {"access": SkyPilotAccess(), "nodes": 2}),
    (JobRecord, {"access": SlurmAccess()}),
]
DEAD = MakerProcess(2**22 + 1, 0.0, "elsewhere-that-is-not")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir()
    return tmp_path


@pytest.mark.parametrize(("kind", "fields"), KINDS)
def test_a_record_is_found_again_until_it_is_removed(folders, kind, fields):
    record = kind(pool_id="p-1", maker=MakerProcess.this(), listing=listing_of("p-1"), **fields)
    record.write()
    assert kind.find("p-1") == record and kind.every() == [record]
    assert kind.find("p-2") is None
    half = folders / "state" / kind.engine / f".p-1.json.{'0' * 16}.new"
    half.touch()  # of a process that was killed as it wrote
    assert kind.every() == [record]
    record.remove()
    assert not kind.every() and not [*half.parent.iterdir()]


@pytest.mark.parametrize(("kind", "fields"), KINDS)
def test_a_pool_that_is_listed_in_another_runtime_folder_is_no_orphan(
    folders, monkeypatch, kind, fields
):
    monkeypatch.setattr(MakerProcess, "may_live", False)
    record = kind(pool_id="p-1", maker=DEAD, listing=listing_of("p-1"), **fields)
    assert record.is_orphan
    (folders / "runtime" / "p-1.json").touch()
    assert not record.is_orphan
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(folders / "other"))
    assert not record.is_orphan


@pytest.mark.parametrize(
    ("mark", "host", "own", "in_container", "is_here"),
    [
        ("a", "laptop", "a", False, True),
        ("a", "laptop-at-work", "a", False, True),
        ("b", "laptop", "a", False, False),
        ("", "laptop", "a", False, True),
        ("", "laptop-at-work", "a", False, False),
        ("a", "laptop", "", False, False),
        ("a", "laptop", "a", True, True),
        ("a", "another-container", "a", True, False),  # both have the mark of their image
    ],
)
def test_a_computer_is_known_by_its_mark_and_else_by_its_name(
    monkeypatch, mark, host, own, in_container, is_here
):
    monkeypatch.setattr(maker_process, "machine_mark", lambda: own)
    monkeypatch.setattr(maker_process, "_is_container", lambda: in_container)
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    assert MakerProcess(1, 0.0, host, machine=mark).is_here is is_here
