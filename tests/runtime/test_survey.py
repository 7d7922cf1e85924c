"""What a rank says of itself, how ranks reach one another, and how often all-reduce is timed."""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from waiting import until

from skyward_nb.runtime import reach, survey
from skyward_nb.runtime.process_group import entered
from skyward_nb.runtime.reductions import calls_for, timed
from skyward_nb.words.findings import LISTENING, ReachResult

WORD = b"sixteen bytes ok"


@pytest.fixture
def listener():
    listening = reach.ProbeListener(3, "127.0.0.1", WORD)
    yield listening
    listening.close()


@pytest.fixture
def closed():
    """Whatever this process listens on as a rank is closed after."""
    yield
    reach.close()


def listening_threads() -> int:
    """Those that answer somebody end by themselves."""
    return sum(thread.name == "skyward-check" for thread in threading.enumerate())


# ── itself ──────────────────────────────────────────────────────────────────────────────


def test_a_rank_without_a_gpu_tells_its_processor():
    found = survey.facts()
    assert (found.rank, found.node, found.address) == (0, 0, "127.0.0.1")
    assert found.host == socket.gethostname()
    assert found.device and found.memory > 1 << 20 and found.cpus >= 1
    assert found.versions["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert "driver" not in found.versions and found.joined == ()


def test_a_framework_that_cannot_be_imported_is_a_trouble(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = survey.facts(["torch"])
    assert "torch" not in found.versions
    assert found.troubles["torch"].startswith("ModuleNotFoundError: ")


def test_its_first_answer_says_where_it_listens(closed):
    found = survey.begin([], WORD)
    assert reach.reach([(0, found.address, found.port)], WORD)[0].trouble == ""


def test_an_address_that_is_not_its_own_is_a_trouble(monkeypatch, closed):
    info = survey.instance_info()
    away = info.peers[0].__class__(0, "192.0.2.1")
    monkeypatch.setattr(
        survey, "instance_info", lambda: survey.replace(info, peers=(away,)), raising=True
    )
    found = survey.begin([], WORD)
    assert found.port == 0
    assert found.troubles[LISTENING].startswith("cannot listen on 192.0.2.1: ")


def test_a_group_that_was_destroyed_is_not_joined(monkeypatch):
    class Distributed:
        @staticmethod
        def is_initialized() -> bool:
            return False

    monkeypatch.setitem(entered, "torch", object())
    monkeypatch.setitem(sys.modules, "torch.distributed", Distributed)
    assert survey._joined() == ()


def one_gpu(calls: list[object]) -> SimpleNamespace:
    """NVML with one GPU, as far as it is asked; it notes what it is asked for."""

    def handle(which: object) -> object:
        calls.append(which)
        return which

    return SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: calls.append("init"),
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetName=lambda _: b"NVIDIA L4",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=24_000_000_000),
        nvmlSystemGetDriverVersion=lambda: "570.1",
    )


@pytest.mark.parametrize(
    ("visible", "asked"),
    [(None, 1), ("2,5", 5), ("7", 7), ("GPU-a,MIG-b", "MIG-b"), ("MIG-c", "MIG-c"), ("", 0)],
    ids=lambda value: str(value) if value != "" else "shared",
)
def test_nvml_tells_of_the_gpu_that_is_its_own(monkeypatch, visible, asked):
    calls: list[object] = []
    monkeypatch.setitem(sys.modules, "pynvml", one_gpu(calls))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    there = 1 if visible == "" else 2  # one that its ranks share
    info = survey.replace(
        survey.instance_info(), rank=1, local_rank=1, accelerators=there, workers_per_node=2
    )
    monkeypatch.setattr(survey, "instance_info", lambda: info)
    found = survey.facts()
    assert (found.device, found.memory, found.devices) == ("NVIDIA L4", 24_000_000_000, 1)
    assert found.versions["driver"] == "570.1"
    assert calls == ["init", asked, "shutdown", "init", "shutdown"]


# ── the way to others ───────────────────────────────────────────────────────────────────


def test_a_listener_is_reached_and_measured(listener):
    address = (3, "127.0.0.1", listener.port)
    (way,) = reach.reach([address], WORD)
    assert way.to == 3 and way.seconds > 0 and not way.trouble
    link = reach.link(address, WORD, seconds=0.02)
    assert link.round_trip > 0 and link.speed > 0


def test_a_rank_that_is_stopped_while_it_measures_has_measured_something(listener, monkeypatch):
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=time.monotonic, perf_counter=lambda: next(seconds))
    monkeypatch.setattr(reach, "time", clock)
    link = reach.link((3, "127.0.0.1", listener.port), WORD, seconds=0.02)
    assert link.round_trip > 0 and link.speed > 0


@pytest.fixture
def time_is_over(monkeypatch):
    """A function: once so many ranks are known, the time for the others is over."""
    go_on, known, enough = reach._go_on, set(), []

    def noted(selector, each, found, **more):
        go_on(selector, each, found, **more)
        known.update(found)

    def now():
        return time.monotonic() + (1000 if enough and len(known) >= enough[0] else 0)

    clock = SimpleNamespace(monotonic=now, perf_counter=time.perf_counter)
    monkeypatch.setattr(reach, "_go_on", noted)
    monkeypatch.setattr(reach, "time", clock)
    monkeypatch.setattr(reach, "_STEP", 1000)  # all of the time counts
    return enough.append


def test_several_are_reached_at_once_and_each_trouble_is_told(listener, time_is_over):
    time_is_over(3)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        everyone = [
            (3, "127.0.0.1", listener.port),
            (4, "127.0.0.1", other.getsockname()[1]),
            (5, "127.0.0.1", silent.getsockname()[1]),
            (6, "127.0.0.1", listener.port),
        ]
        stranger = socket.create_connection(("127.0.0.1", listener.port))
        with stranger:  # says nothing, and keeps nobody waiting
            ways = reach.reach(everyone, WORD, patience=60)
    assert [way.to for way in ways] == [3, 4, 5, 6]
    assert [way.trouble for way in ways] == [
        "",
        "connection refused",
        "no answer in 60 s",
        "another rank answered there",
    ]


def test_who_does_not_know_the_word_is_told_nothing(listener):
    address = (3, "127.0.0.1", listener.port)
    assert reach.reach([address], b"another word, 16") == [
        ReachResult(3, trouble="something else answered there")
    ]
    assert not reach.reach([address], WORD)[0].trouble


def test_a_listener_outlives_those_who_hang_up(listener):
    for said in (b"", WORD[:4], WORD, WORD + b"x"):
        with socket.create_connection(("127.0.0.1", listener.port)) as connection:
            connection.sendall(said)
    assert not reach.reach([(3, "127.0.0.1", listener.port)], WORD)[0].trouble


def test_a_listener_waits_for_who_is_held_up_before_the_word(listener, monkeypatch):
    monkeypatch.setattr(reach, "_PATIENCE", 0.05)
    with socket.create_connection(("127.0.0.1", listener.port)) as connection:
        time.sleep(0.3)
        connection.sendall(WORD)
        assert connection.recv(4)


def test_nothing_listens_after_it_is_closed(closed):
    # One that answered somebody a moment ago may be about to end.
    until(lambda: not listening_threads())
    port = reach.listen(0, "127.0.0.1", WORD)
    again = reach.listen(0, "127.0.0.1", WORD)
    assert listening_threads() == 1, "the later one"
    reach.close()
    assert not listening_threads()
    for each in (port, again):
        assert reach.reach([(0, "127.0.0.1", each)], WORD)[0].trouble == "connection refused"


# ── how often ───────────────────────────────────────────────────────────────────────────


class Slow:
    """Reduces in a time that is as told: so many seconds for each number."""

    def __init__(self, each: float) -> None:
        self.places = 4
        self._each = each
        self.prepared: list[int] = []
        self.calls = 0

    def prepare(self, count):
        self.prepared.append(count)

        def call():
            self.calls += 1

        return call

    def most(self, value):
        del value
        return self._each * self.prepared[-1]


def test_sizes_that_would_take_too_long_are_left_out():
    reducer = Slow(1e-3)
    found = timed(reducer, [4_000, 40_000, 400_000], seconds=4.0)
    assert [each.size for each in found] == [4_000]
    found = timed(Slow(1e-6), [4_000, 40_000, 400_000], seconds=4.0)
    assert [each.size for each in found] == [4_000, 40_000, 400_000]
    assert all(each.places == 4 for each in found)


@pytest.mark.parametrize(("once", "calls"), [(0.0, 50), (1e-6, 50), (0.01, 15), (0.1, 1), (9, 1)])
def test_what_takes_long_is_called_seldom(once, calls):
    assert calls_for(once) == calls
