"""A machine that an engine has given: its engine is asked why it has ended, and delays nothing by its answer."""

import asyncio
from types import SimpleNamespace

import pytest

from skyward_nb.providers.far import engine_machine
from skyward_nb.providers.far.engine_machine import EngineMachine
from skyward_nb.providers.far.far_machine import FarMachine
from skyward_nb.providers.provider_protocol import AgentGone, MachineEnded


@pytest.fixture
def opened(monkeypatch):
    """`opened(way, engine)`: what comes of a channel that `way` opens, whose engine says `engine`; and what was told."""
    monkeypatch.setattr(engine_machine, "_ASK_EACH", 0.01)

    def come(way, engine):
        made = object.__new__(EngineMachine)
        made.given, made.why_ended = SimpleNamespace(was_told=False), engine

        async def open_it(_self, _name, _opening):
            return await way()

        monkeypatch.setattr(FarMachine, "_opened", open_it)
        found = asyncio.run(asyncio.wait_for(made._opened("agent.sock", None), 30))
        return found, made.given.was_told

    return come


async def never():
    await asyncio.Event().wait()


async def gone():
    return "it was preempted"


async def lives():
    return ""


async def soon():
    await asyncio.sleep(0.1)
    return "stream"


async def refused():
    raise AgentGone


def test_a_channel_of_a_machine_that_has_ended_is_not_waited_for(opened):
    for way in (never, refused):
        with pytest.raises(MachineEnded, match="it was preempted"):
            opened(way, gone)
    with pytest.raises(AgentGone):
        opened(refused, lives)


def test_a_channel_that_opens_as_its_machine_ends_is_closed(opened):
    meanwhile, closed = asyncio.Event(), []

    async def opens():
        await meanwhile.wait()
        return SimpleNamespace(close=lambda: closed.append("stream"))

    async def ends():
        meanwhile.set()
        return await gone()

    with pytest.raises(MachineEnded, match="it was preempted"):
        opened(opens, ends)
    assert closed == ["stream"]


@pytest.mark.parametrize("engine", [lives, never])
def test_a_channel_that_opens_waits_for_no_engine_that_does_not_answer(opened, engine):
    assert opened(soon, engine) == ("stream", True)
