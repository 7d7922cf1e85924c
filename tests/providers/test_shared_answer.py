"""One answer for all who ask at the same time, and a new one once it is old."""

import asyncio
from types import SimpleNamespace

import pytest

from skyward_nb.providers.far import shared_answer
from skyward_nb.providers.far.shared_answer import SharedAnswer


@pytest.fixture
def source():
    """A source that answers with the number of its calls, once its gate is open."""

    class Source:
        calls, gate = 0, asyncio.Event()

        async def ask(self):
            self.calls += 1
            number = self.calls
            await self.gate.wait()
            return number

    return Source()


def test_callers_share_an_answer_that_a_cancelled_one_leaves_to_the_others(source):
    async def ask():
        answer = SharedAnswer(source.ask)
        callers = [asyncio.ensure_future(answer.get(anew=anew)) for anew in (False, True, False)]
        await asyncio.sleep(0)
        callers[0].cancel()
        source.gate.set()
        return await asyncio.gather(*callers[1:]), await answer.get()

    assert asyncio.run(ask()) == ([1, 1], 1)


def test_an_old_answer_and_one_that_is_not_wanted_are_asked_for_anew(source, monkeypatch):
    source.gate.set()
    now = [100.0]
    monkeypatch.setattr(shared_answer, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def ask():
        answer = SharedAnswer(source.ask, 5.0)
        found = [await answer.get(), await answer.get(), await answer.get(anew=True)]
        now[0] += 6.0
        return [*found, await answer.get()]

    assert asyncio.run(ask()) == [1, 1, 2, 3]
