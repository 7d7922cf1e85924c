"""A run recorded by torch's profiler in this process, and all that may hinder it."""

from __future__ import annotations

import gzip
import json
import os
import tempfile

import pytest
from later import needs

from skyward_nb.plugins import torch_profile
from skyward_nb.plugins.torch_profile import TorchRecording
from skyward_nb.words.info import InstanceInfo

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]
INFO = InstanceInfo(rank=1, world_size=2)


@pytest.fixture
def recording():
    import torch

    recording = TorchRecording()
    recording.begin()
    torch.ones(3) + 1
    recording.end()
    assert not torch.autograd._profiler_enabled()
    return recording


def test_what_was_done_is_in_its_trace(recording):
    found = recording.result(INFO, 0)
    assert found.trouble == "" and found.seconds >= found.recorded > 0 and found.collectives == ()
    trace = json.loads(gzip.decompress(found.trace))
    assert "aten::add" in {event["name"] for event in trace["traceEvents"]}
    events = json.loads(b"[" + gzip.decompress(found.events) + b"]")
    assert "aten::add" in {event["name"] for event in events}
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names[0] == "rank 1"


@pytest.mark.extensive
def test_one_that_takes_too_much_memory_ends_before_the_run(monkeypatch):
    import torch

    monkeypatch.setattr(TorchRecording, "most", 8 << 20)
    recording = TorchRecording()
    recording.begin()
    one, step = torch.ones(1), 0
    with torch.profiler.record_function("the first"):
        while torch.autograd._profiler_enabled():
            one.add(1)
            step += 1
    with torch.profiler.record_function("the last"):
        one.add(1)
    recording.end()
    found = recording.result(INFO, 0)
    assert not found.trouble
    assert 0 < found.recorded < found.seconds
    names = [each["name"] for each in json.loads(gzip.decompress(found.trace))["traceEvents"]]
    assert 0 < names.count("aten::add") <= step
    assert "the first" in names
    assert "the last" not in names


def test_what_cannot_be_written_is_told(recording, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording._profiler, "export_chrome_trace", full)
    found = recording.result(INFO, 0)
    assert found.trace == b"" and "No space left on device" in found.trouble


def test_an_interrupt_of_the_writing_passes_and_leaves_no_file(recording, monkeypatch, tmp_path):
    def interrupted(data):
        assert any(tmp_path.iterdir()) is False
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torch_profile, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recording.result(INFO, 0)
    assert list(tmp_path.iterdir()) == []
    assert recording.without("stopped").trouble == "stopped"


def test_a_long_one_is_left_unread_in_haste(recording):
    recording._stopping = 60.0
    found = recording.result(INFO, 0, in_haste=True)
    assert found.trace == b"" and found.trouble.startswith("the run was stopped")


def test_one_that_could_not_begin_says_why(monkeypatch):
    import torch.profiler

    def broken(*_, **__):
        raise RuntimeError("no Kineto\nin this build")

    monkeypatch.setattr(torch.profiler, "profile", broken)
    recording = TorchRecording()
    recording.begin()
    recording.end()
    assert recording.result(INFO, 0).trouble == "RuntimeError: no Kineto"


def test_of_standard_error_only_the_profilers_own_remarks_are_lost(capfd):
    with torch_profile._without_talk():
        os.write(2, b"mine\nUSDT:2026-11-20 22:11:34 1:1 Handler.cpp:52] profiler_start\n")
        os.write(2, b"STAGE:2026-11-20 22:11:34 1:1 Handler.cpp:52] done\nSTAGE: mine, too\n")
    assert capfd.readouterr().err == "mine\nSTAGE: mine, too\n"
