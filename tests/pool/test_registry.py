"""Which pools elsewhere are listed, and when they are forgotten."""

import os
import socket
import time

import psutil
import pytest
from pools import found

from skyward_nb.api.left import announcement, forget, others, unanswered
from skyward_nb.pool import registry
from skyward_nb.providers.base import AgentGone
from skyward_nb.providers.folders import far_root
from skyward_nb.providers.table import PROVIDERS
from skyward_nb.words.errors import PoolError
from skyward_nb.words.parts import Client
from skyward_nb.words.spec import PoolSpec


class Answers:
    """A machine that answers with this error."""

    nodes = (0,)

    def __init__(self, error, released):
        self._error, self._released = error, released

    async def connect(self):
        raise self._error

    async def release(self):
        self._released.append(self)

    def leave(self):
        """Nobody is there."""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Lists pools whose machines answer with these errors; what was released."""
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "run"))
    answers, released = {}, []

    class Elsewhere:
        shares_files = False

        def find(self, spec, pool_id):
            return tuple(Answers(error, released) for error in answers[pool_id])

    monkeypatch.setitem(PROVIDERS, "fake", Elsewhere)

    def make(pool_id, *errors, client=None, **options):
        answers[pool_id] = errors
        spec = PoolSpec(provider="fake", **options)
        registry.enter(
            registry.Entry(
                pool_id=pool_id, spec=spec, notebook="", started=time.time(), client=client
            )
        )
        return released

    return make


def listed():
    return {entry.pool_id for entry in registry.entries()}


def aged(seconds):
    for path in far_root().iterdir():
        os.utime(path, (0, time.time() - seconds))


def client(pid, since):
    return Client(key="", pid=pid, host=socket.gethostname(), since=since)


def myself():
    return client(os.getpid(), psutil.Process().create_time())


AWAY = OSError("no route to host")


def test_a_pool_that_is_silent_for_too_long_is_forgotten(elsewhere):
    elsewhere("p-1", AWAY, idle=600.0)
    aged(10_000)
    assert listed() == {"p-1"}, "nobody has asked it so far"
    assert others() == []
    assert listed() == {"p-1"}
    aged(500)
    assert others() == []
    assert listed() == {"p-1"}
    aged(700)
    assert listed() == set()
    assert not [*far_root().iterdir()]


def test_a_pool_whose_time_is_over_is_forgotten(elsewhere):
    elsewhere("p-1", AWAY, ttl=60.0)
    assert listed() == {"p-1"}
    aged(100)
    assert listed() == set()


def test_a_pool_that_somebody_here_conducts_stays_and_is_not_announced(elsewhere):
    elsewhere("used", AWAY, client=myself(), ttl=60.0)
    elsewhere("left", AWAY, client=client(os.getpid(), 1.0))
    assert others() == []
    aged(10_000)
    assert "pool=left goes on" not in announcement("")
    assert listed() == {"used"}
    registry.left(registry.entries()[0], client(1, 1.0))
    assert listed() == {"used"}
    registry.left(registry.entries()[0], myself())
    assert "pool=used goes on" in announcement("")


def test_a_pool_goes_when_all_of_its_machines_say_that_it_is_gone(elsewhere):
    elsewhere("gone", AgentGone(), AgentGone())
    elsewhere("half", AgentGone(), AWAY)
    assert others() == []
    assert listed() == {"half"}


def test_a_pool_that_does_not_answer_can_be_forgotten(elsewhere):
    released = elsewhere("p-1", AWAY, AWAY)
    elsewhere("p-2", AWAY)
    assert ["%sky down pool=p-2" in said for said in unanswered(others())] == [True, False]
    with pytest.raises(PoolError, match="pool=p-2 or pool=p-1"):
        forget("default", [])
    assert forget("p-3", []) is None
    assert forget("p-1", []).pool_id == "p-1"
    assert len(released) == 2
    assert listed() == {"p-2"}


def test_who_conducts_a_pool_elsewhere_is_listed(make):
    pool = make(provider="fake", nodes=1)
    (entry,) = registry.entries()
    assert entry.is_used and entry.client.key == ""
    pool.leave()
    (entry,) = registry.entries()
    assert entry.client is None
    again = found(pool)
    again.attach(lambda _: None)
    assert registry.entries()[0].is_used
    again.close()
    assert registry.entries() == []
