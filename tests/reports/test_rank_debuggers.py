"""What the bridge between a front end's debugger and ranks' lets through, keeps, and says; ranks are played here."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest

from skyward_nb.pool.run_clock import RunClock
from skyward_nb.protocol.events import DebugMessage, RankDone
from skyward_nb.reports import present_debugger
from skyward_nb.reports.debug_bridge import DebugBridge
from skyward_nb.reports.execution import Execution

EVIL = "<script>evil()</script>"


class Own:
    """A kernel's own debugger that takes all."""

    is_started = True
    just_my_code = True

    def __init__(self):
        self.breakpoint_list = {}
        self.stopped_threads = set()
        self.said = []
        self.event_callback = self.said.append

    def accept_variable(self, variable_name):
        return True

    async def answers(self, request):
        return {"type": "response", "success": True, "body": {"asked": request["command"]}}


class Played:
    """Ranks of a pool whose debuggers answer at once with what `answers` has."""

    def __init__(self, bridge):
        self.bridge = bridge
        self.answers = {}
        self.sent = []
        self.pool = SimpleNamespace(
            pool_id="p", lines=self, context=SimpleNamespace(run_clock=RunClock())
        )

    def send(self, request):
        asked = json.loads(request.text)
        self.sent.append(asked["command"])
        body = self.answers.get(asked["command"])
        if body is not None:
            said = {"type": "response", "request_seq": asked["seq"], "success": True, "body": body}
            (rank,) = request.ranks
            message = DebugMessage(request.run, rank, json.dumps(said))
            asyncio.get_running_loop().call_soon(self.bridge.heard, self.pool, message)

    def says(self, run, rank, event, **body):
        said = {"type": "event", "event": event, "body": body}
        return DebugMessage(run, rank, json.dumps(said))

    def stand(self, run=1, rank=0):
        self.bridge.began(self.pool, run, (rank,))
        self.bridge.heard(self.pool, self.says(run, rank, "initialized"))
        self.bridge.heard(self.pool, self.says(run, rank, "stopped", threadId=1, reason="step"))


@pytest.fixture
def own():
    return Own()


@pytest.fixture
def bridge(own):
    return DebugBridge(own)


@pytest.fixture
def ranks(bridge):
    return Played(bridge)


def ask(bridge, own, command, **arguments):
    request = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
    return asyncio.run(bridge.answer(request, own.answers))


def frame_of(bridge, own, ranks):
    ranks.answers["stackTrace"] = {"stackFrames": [{"id": 70, "name": "step"}]}
    (found,) = ask(bridge, own, "stackTrace", threadId=1)["body"]["stackFrames"]
    return found["id"]


def looked_at(bridge, own, ranks, result):
    ranks.stand()
    ranks.answers["evaluate"] = {"result": result}
    frame = frame_of(bridge, own, ranks)
    return ask(bridge, own, "richInspectVariables", variableName="x", frameId=frame)["body"]["data"]


def test_a_variable_of_a_rank_has_no_markup_or_script_in_the_page(bridge, own, ranks):
    kinds = ("text/html", "application/javascript", "image/svg+xml", "text/markdown", "text/latex")
    data = {**dict.fromkeys(kinds, EVIL), "text/plain": "x", "image/png": b"\x89P", 3: "y"}
    found = looked_at(bridge, own, ranks, repr((data, {"text/html": {"isolated": False}})))
    assert set(found) == {"text/html", "text/plain", "image/png"}
    assert found["text/html"].startswith('<iframe sandbox="allow-scripts"')
    assert "<script" not in found["text/html"]
    assert (found["text/plain"], found["image/png"]) == ("x", "iVA=")


@pytest.mark.parametrize("result", ["[" * 5000, "(" * 150 + ")" * 150, "f(", "3", "({}, 1, 2)"])
def test_what_cannot_be_read_is_shown_as_text(bridge, own, ranks, result):
    assert looked_at(bridge, own, ranks, result) == {"text/plain": result}


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[" * 100_000,
        "[1]",
        '{"type": "event"',
        '{"type": "request", "seq": 1}',
        '{"type": "event", "event": ["stopped"]}',
        '{"type": "event", "event": "stopped"}',
        '{"type": "event", "event": "stopped", "body": {"threadId": [1]}}',
        '{"type": "response", "request_seq": "1"}',
    ],
    ids=range(9),
)
def test_a_message_that_is_none_ends_what_is_heard_of_its_rank_and_nothing_else(
    bridge, ranks, text
):
    ranks.stand(rank=0)
    ranks.stand(rank=1)
    bridge.heard(ranks.pool, DebugMessage(1, 1, text))
    assert [*bridge.standing(ranks.pool, 1)] == [0]
    assert ranks.sent == ["disconnect"], "its code goes on"
    bridge.over(ranks.pool, 1, (0, 1))
    assert not bridge.takes_no_time(ranks.pool)


@pytest.mark.parametrize(
    ("command", "body"),
    [
        ("variables", {"variables": [3]}),
        ("variables", {}),
        ("stackTrace", {"stackFrames": "none"}),
        ("richInspectVariables", {}),
    ],
)
def test_an_answer_that_is_none_is_told_to_the_front_end(bridge, own, ranks, command, body):
    ranks.stand()
    frame = frame_of(bridge, own, ranks)
    ranks.answers |= {command: body, "evaluate": body}
    arguments = {"variablesReference": frame, "frameId": frame, "variableName": "x"}
    reply = ask(bridge, own, command, **arguments)
    assert (reply["success"], reply["request_seq"]) == (False, 1)
    assert "rank 0's debugger cannot be read" in reply["message"]


def test_numbers_and_pools_are_dropped_with_what_they_meant(bridge, own, ranks):
    ranks.stand()
    frame = frame_of(bridge, own, ranks)
    (thread,) = [each["id"] for each in bridge._all_threads()]
    assert ask(bridge, own, "continue", threadId=thread)["success"]
    reply = ask(bridge, own, "scopes", frameId=frame)
    assert (reply["success"], reply["message"]) == (False, "that rank has gone on since")
    ranks.stand()
    assert [each["id"] for each in bridge._all_threads()] == [thread], "it is known by that"
    bridge.began(ranks.pool, 2, (1,))
    bridge.over(ranks.pool, 1, (0,))
    assert bridge._pools
    bridge.over(ranks.pool, 2, (1,))
    assert not (bridge._pools or bridge._threads._numbers or bridge._threads._meant)


def test_what_is_too_long_for_a_rank_is_refused_and_not_waited_for(bridge, own, ranks):
    ranks.stand()
    frame = frame_of(bridge, own, ranks)
    reply = ask(bridge, own, "evaluate", frameId=frame, expression="x" * 50_001)
    assert not reply["success"]
    assert reply["message"] == "ranks are asked at most 50,000 characters at once"
    points = [{"line": number, "condition": "x" * 500} for number in range(200)]
    reply = ask(bridge, own, "setBreakpoints", source={"path": "a"}, breakpoints=points)
    assert not reply["success"]
    assert reply["message"].startswith("from the next run on")
    assert len(json.loads(bridge.plan().requests[0])["arguments"]["breakpoints"]) == 200
    assert "setBreakpoints" not in ranks.sent


def test_the_clock_stands_still_while_a_rank_of_any_run_of_the_pool_stands(
    bridge, own, ranks, monkeypatch
):
    monkeypatch.setattr(present_debugger, "_bridge", bridge)
    clock = ranks.pool.context.run_clock
    displays = SimpleNamespace(
        pool=ranks.pool, lock=threading.RLock(), give=lambda *_: None, end=lambda *_: None
    )
    view = SimpleNamespace(ranks={})
    display = SimpleNamespace(view=view, hang="", change=lambda **_: None, show=lambda: None)

    def execution(number):
        made = Execution(displays, display, "")
        state = SimpleNamespace(is_stopping=False, ranks=(number,), running=())
        made._run = SimpleNamespace(number=number, state=state)
        return made

    stands, other = execution(1), execution(2)
    bridge.began(ranks.pool, 1, (1,))
    bridge.began(ranks.pool, 2, (2,))
    for run in (1, 2):
        stands.watch(ranks.says(run, run, "initialized"))
    assert clock.real(5.0) is not None
    stands.watch(ranks.says(1, 1, "stopped", threadId=1, reason="step"))
    other.watch(None)
    assert clock.real(5.0) is None, "its tick does not let the other's clock go on"
    other.watch(RankDone(run=2, rank=2))
    other.end_log()
    assert clock.real(5.0) is None, "nor does its end"
    stands.end_log()
    assert clock.real(5.0) is not None
