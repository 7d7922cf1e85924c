"""GPUs cut and put together again, by a tool that plays NVIDIA's."""

import pytest
from gpus import Nvidia, gpu

from skyward_nb.system import mig_partition
from skyward_nb.system import nvidia_smi as tool
from skyward_nb.system.mig_partition import PartitionFailed, cut, undo
from skyward_nb.system.slices_note import is_noted


@pytest.fixture
def nvidia(tmp_path, monkeypatch):
    return Nvidia(tmp_path, monkeypatch)


def test_a_gpu_is_cut_by_these_commands_and_put_together_by_these(nvidia, tmp_path):
    nvidia.have(gpu(0, mig="Disabled"))
    cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    assert nvidia.asked() == ["-i 0 -mig 1", "mig -i 0 -cgi 3g.40gb,3g.40gb -C"]
    assert is_noted(tmp_path)
    assert undo(tmp_path) == ""
    assert nvidia.asked() == ["mig -i 0 -dci -gi 1,2", "mig -i 0 -dgi -gi 1,2", "-i 0 -mig 0"]
    assert nvidia.profiles == [None]
    assert not is_noted(tmp_path)
    assert undo(tmp_path) == ""
    assert nvidia.asked() == []


def test_mig_stays_on_where_it_was_on(nvidia, tmp_path):
    nvidia.have(gpu(0))
    cut(tmp_path, *tool.cards(), "1g.10gb", 7)
    assert nvidia.asked() == [f"mig -i 0 -cgi {','.join(['1g.10gb'] * 7)} -C"]
    undo(tmp_path)
    assert nvidia.profiles == [[]]
    assert not [each for each in nvidia.asked() if "-mig" in each]


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (gpu(0, "1g.10gb"), "has slices already"),
        (gpu(0, mig="Disabled", processes=[4242]), "used by process 4242"),
    ],
)
def test_a_gpu_that_is_used_is_left_alone(nvidia, tmp_path, there, says):
    nvidia.have(there)
    with pytest.raises(PartitionFailed, match=says):
        cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    assert nvidia.asked() == []
    assert not is_noted(tmp_path)


def test_the_tools_own_words_where_it_refuses(nvidia, tmp_path):
    nvidia.have(gpu(0, mig="Disabled"), refuses={"mig 1": "Insufficient Permissions"})
    with pytest.raises(PartitionFailed, match=r"Unable to enable MIG Mode .* Insufficient Perm"):
        cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    assert nvidia.asked() == ["-i 0 -mig 1"]
    assert undo(tmp_path) == ""
    assert nvidia.asked() == ["-i 0 -mig 0"]


@pytest.mark.parametrize("password", [False, True])
def test_who_may_not_cut_does_it_by_sudo_if_that_asks_for_no_password(nvidia, tmp_path, password):
    nvidia.have(gpu(0, mig="Disabled"), refuses={"mig 1": "Insufficient Permissions"})
    says = 'echo "sudo: a password is required"; exit 1'
    as_root = """[ "$1" = -n ] && shift && sed -i 's/"mig 1"/"-"/' "$FAKE_NVIDIA" && exec "$@\""""
    sudo = tmp_path / "bin" / "sudo"
    sudo.write_text(f"#!/bin/sh\n{says if password else as_root}\n")
    sudo.chmod(0o755)
    if password:
        with pytest.raises(PartitionFailed, match="Unable to enable MIG Mode"):
            cut(tmp_path, *tool.cards(), "3g.40gb", 2)
        return
    cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    assert nvidia.profiles == [["3g.40gb", "3g.40gb"]]


def test_a_mode_that_is_pending_is_taken_back_and_nothing_is_reset(nvidia, tmp_path):
    nvidia.have(gpu(0, mig="Disabled"), pending="In use by another client")
    with pytest.raises(PartitionFailed, match=r"pending enable state .*In use by another client"):
        cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    undo(tmp_path)
    assert nvidia.asked() == ["-i 0 -mig 1", "-i 0 -mig 0"]
    assert not is_noted(tmp_path)


def test_what_was_made_before_a_failure_is_undone(nvidia, tmp_path):
    nvidia.have(gpu(0, mig="Disabled"), most=1)
    with pytest.raises(PartitionFailed, match="Insufficient Resources"):
        cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    undo(tmp_path)
    assert nvidia.profiles == [None]


def test_slices_of_somebody_else_are_never_destroyed(nvidia, tmp_path):
    nvidia.have(gpu(0, mig="Disabled"))
    cut(tmp_path, *tool.cards(), "3g.40gb", 1)
    state = nvidia.state
    state["gpus"][0]["slices"].append({"profile": "1g.10gb", "gi": 9, "uuid": "MIG-theirs"})
    nvidia.change(**state)
    assert undo(tmp_path) == ""
    assert nvidia.profiles == [["1g.10gb"]], "and MIG stays on for them"


def test_what_cannot_be_undone_is_told_and_tried_again(nvidia, tmp_path):
    nvidia.have(gpu(0, mig="Disabled"))
    cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    state = nvidia.state
    state["gpus"][0]["slices"][0]["busy"] = True
    nvidia.change(**state)
    assert "GPU 0 (NVIDIA A100-SXM4-80GB) is still cut into slices" in undo(tmp_path)
    assert is_noted(tmp_path)
    state["gpus"][0]["slices"][0]["busy"] = False
    nvidia.change(**state)
    assert undo(tmp_path) == ""
    assert nvidia.profiles == [None]


def test_after_a_new_start_of_the_machine_nothing_is_ours(nvidia, tmp_path, monkeypatch):
    nvidia.have(gpu(0))
    cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    nvidia.asked()
    monkeypatch.setattr(mig_partition.processes, "boot", lambda: "another life")
    assert undo(tmp_path) == ""
    assert nvidia.asked() == []
    assert not is_noted(tmp_path)


def test_a_tool_that_is_gone_is_no_reason_to_forget(nvidia, tmp_path, monkeypatch):
    nvidia.have(gpu(0))
    cut(tmp_path, *tool.cards(), "3g.40gb", 2)
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        assert "does not list it" in undo(tmp_path)
    assert undo(tmp_path) == ""
    assert nvidia.profiles == [[]]
