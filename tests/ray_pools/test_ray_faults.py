"""What the helper and the actors do while Ray is slow, or away: without Ray."""

import asyncio
import importlib.util
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.ray import helper
from skyward_nb.providers.ray.group import NodeGroup
from skyward_nb.providers.ray.group_records import GroupRecord
from skyward_nb.words.provider_access import RayAccess
from skyward_nb.words.spec import PoolSpec


async def _soon(value):
    return value


async def _never():
    await asyncio.Event().wait()


async def _ticks():
    """Let others do what they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def _fails():
    raise RuntimeError("its keeper did not start")


def test_actors_that_are_late_are_named_with_what_shows_them():
    started = asyncio.run(helper._all_started({"g.0": _soon(1), "g.1": _soon(2)}, 5))
    assert started == [1, 2]
    with pytest.raises(RuntimeError, match=r"1 of 2 actors .*\(g\.1\): `ray list actors`"):
        asyncio.run(helper._all_started({"g.0": _soon(1), "g.1": _never()}, 0.01))
    with pytest.raises(RuntimeError, match="its keeper"):
        asyncio.run(helper._all_started({"g.0": _never(), "g.1": _fails()}, 5))


def test_a_client_whose_process_at_the_head_dies_is_made_anew():
    slow = ConnectionAbortedError("...\nRuntimeError: Proxy failed to Connect to backend! Check")
    died = ConnectionAbortedError("...\nRuntimeError: Starting Ray client server failed. See")
    other = ValueError("another")
    for answers, raised, tries in (
        ([None], None, 1),
        ([slow, died, None], None, 3),
        ([died, died, slow, None], slow, 3),
        ([other, None], other, 1),
    ):
        asked, told = [], None

        def init(asked=asked, answers=answers, **words):
            asked.append(words)
            if error := answers[len(asked) - 1]:
                raise error

        try:
            helper._connect(SimpleNamespace(init=init), "ray://h:10001")
        except (ConnectionAbortedError, ValueError) as error:
            told = error
        assert (told, len(asked)) == (raised, tries)
        assert asked[0]["address"] == "ray://h:10001"


def _ender(monkeypatch, group, faults):
    """A helper without Ray, whose actors are `faults`, and when each was looked at and ended."""
    made, seen = object.__new__(helper.Helper), []
    made._own, made._groups, made._starting = set(), {"g": group}, {}
    made._ray = SimpleNamespace(util=SimpleNamespace(remove_placement_group=seen.append))

    async def fault(name):
        seen.append(f"look {name}")
        await asyncio.sleep(0.03)
        return faults[name]

    async def finished(name):
        seen.append(f"end {name}")
        faults[name] = "ended"
        return True

    async def looked(_asked):
        return {"state": "REMOVED"}

    made._fault, made._finished, made.look_at_group = fault, finished, looked
    monkeypatch.setattr(helper, "_PAUSE", 0.001)
    return made, seen


def test_a_node_that_does_not_answer_keeps_no_others_beyond_their_patience(monkeypatch):
    """Each look at it takes as long as that may: there were as many looks as in a patience of quick ones."""
    made, seen = _ender(monkeypatch, "group", {"g.0": "", "g.1": "gone"})
    ended = asyncio.run(made.end_group({"group": "g", "count": 2, "patience": 0.1}))
    assert ended == {"left": [], "was_there": True}
    assert "group" in seen
    assert seen[: seen.index("end g.0")].count("look g.0") < 10


def test_a_group_that_was_never_made_is_not_said_to_be_ended(monkeypatch):
    made, seen = _ender(monkeypatch, None, {"g.0": "gone"})
    ended = asyncio.run(made.end_group({"group": "g", "count": 1, "patience": 0.0}))
    assert ended == {"left": [], "was_there": False}
    assert seen[0] == "end g.0"


def test_a_group_that_is_asked_for_is_removed_once_it_is_there(monkeypatch):
    """An interrupt ends a pool while Ray takes its time for the group: it is detached, and no process would end it."""
    made, seen = _ender(monkeypatch, None, {"g.0": "gone"})
    goes_on = threading.Event()

    def start(_bundles, _strategy, name, lifetime):
        goes_on.wait(20)
        seen.append("made")
        return f"{lifetime} {name}"

    made._groups.clear()
    made._ray.util.placement_group = start

    async def scene():
        asking = asyncio.ensure_future(made.start_group({"group": "g", "bundles": [{"CPU": 1}]}))
        await _ticks()
        ending = asyncio.ensure_future(made.end_group({"group": "g", "count": 1, "patience": 0.0}))
        await _ticks()
        goes_on.set()
        await asking
        return await ending

    assert asyncio.run(scene()) == {"left": [], "was_there": True}
    assert seen[:3] == ["made", "end g.0", "detached g"]


def test_a_helper_that_nobody_needs_waits_for_the_group_that_it_has_asked_for(monkeypatch):
    """The kernel was killed meanwhile: the group would be there for ever."""
    made, seen = _ender(monkeypatch, None, {})
    monkeypatch.setattr(helper, "_LEAVE_LIMIT", 0.01)
    goes_on = threading.Event()
    made._groups.clear()
    made._serving, made._beating = set(), {}
    made._ray.util.placement_group = lambda *_: goes_on.wait(20) and "group"

    async def scene():
        asking = asyncio.ensure_future(made.start_group({"group": "g", "bundles": [{"CPU": 1}]}))
        made._serving.add(asking)
        leaving = asyncio.ensure_future(made.leave())
        await asyncio.wait([asking])
        assert asking.cancelled() and not leaving.done()
        goes_on.set()
        await leaving

    loop = asyncio.new_event_loop()
    scenes = loop.create_task(scene())
    loop.run_forever()  # until `leave` stops it
    loop.run_until_complete(scenes)
    loop.close()
    made.end_own()
    assert seen == ["group"]


def test_an_interrupt_waits_for_the_answer_to_a_group_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path))

    async def scene():
        asked, goes_on, answered = asyncio.Event(), asyncio.Event(), []

        async def ask(_request, _answer):
            asked.set()
            await goes_on.wait()
            answered.append("group")
            return {}

        client = SimpleNamespace(started=lambda: _soon(1), cluster="here", ask=ask)
        record = GroupRecord(pool_id="p-1", access=RayAccess(), maker=MakerProcess.this(), count=1)
        group = NodeGroup(record, client)
        begun = asyncio.ensure_future(group.begin(PoolSpec(), lambda _: None))
        await asked.wait()
        begun.cancel()
        await _ticks()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert answered == ["group"]

    asyncio.run(scene())


class _RayError(Exception):
    pass


def test_a_group_is_removed_once_ray_is_there_again(monkeypatch):
    removed, answers = [], [_RayError("away"), _RayError("away"), "group", ValueError("none")]

    def get(_name):
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    ray = SimpleNamespace(
        exceptions=SimpleNamespace(RayError=_RayError),
        util=SimpleNamespace(get_placement_group=get, remove_placement_group=removed.append),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    path = Path(helper.__file__).with_name("node_actor.py")
    spec = importlib.util.spec_from_file_location("node_actor_without_ray", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_PAUSE", 0.001)
    asyncio.run(module._removed("g"))
    assert removed == ["group"] and not answers
