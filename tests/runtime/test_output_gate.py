"""Functions of which some ranks show no output: what is hidden while they run, of each kind of function."""

from __future__ import annotations

import asyncio
import os

import pytest

from skyward_nb.runtime import event_sink
from skyward_nb.runtime.output_gate import showing


@pytest.fixture
def at(monkeypatch):
    """Put this process at a rank of a pool of four."""
    from skyward_nb.words.info import COMPUTE_POOL, Peer, environment, place
    from skyward_nb.words.spec import PoolSpec

    infos = place(PoolSpec(nodes=4), tuple(Peer(n, "127.0.0.1") for n in range(4)), 1, "job", 1)
    monkeypatch.setattr(event_sink, "_emit", lambda _: None)
    monkeypatch.setattr(event_sink, "_hidden", {})

    def put(rank):
        monkeypatch.setenv(COMPUTE_POOL, environment(infos[rank])[COMPUTE_POOL])

    return put


def hidden():
    return [event_sink.is_hidden("stdout"), event_sink.is_hidden("stderr")]


@pytest.mark.parametrize(
    ("only", "heard"),
    [
        ("all", {0, 1, 2, 3}),
        ("head", {0}),
        ("none", set()),
        (2, {2}),
        ((1, 3), {1, 3}),
        (lambda info: info.rank > 1, {2, 3}),
    ],
)
def test_the_ranks_that_are_named_show_it(at, only, heard):
    show = showing(hidden, ("stdout",), only)
    for rank in range(4):
        at(rank)
        assert show() == [rank not in heard, False]
        assert hidden() == [False, False]


def test_each_kind_of_function_hides_while_it_runs(at):
    at(1)

    def numbers():
        got = yield hidden()
        yield got, hidden()
        return 3

    async def one():
        await asyncio.sleep(0)
        return hidden()

    async def some():
        yield hidden()

    streams = ("stdout", "stderr")
    generator = showing(numbers, streams, "head")()
    assert next(generator) == [True, True]
    assert generator.send(5) == (5, [True, True])
    with pytest.raises(StopIteration) as ended:
        next(generator)
    assert ended.value.value == 3
    assert asyncio.run(showing(one, streams, "head")()) == [True, True]

    async def all_of():
        return [each async for each in showing(some, streams, "head")()]

    assert asyncio.run(all_of()) == [[True, True]]
    assert hidden() == [False, False]


def test_an_asynchronous_generator_gets_what_is_sent_and_thrown(at):
    at(1)
    closed = []

    async def numbers():
        got = "nothing"
        try:
            while True:
                try:
                    got = yield got, hidden()
                except ValueError as error:
                    got = str(error)
                if got == "enough":
                    return
        finally:
            closed.append(hidden())

    async def use():
        values = showing(numbers, ("stdout", "stderr"), "head")()
        heard = [await anext(values), await values.asend(5), await values.athrow(ValueError("no"))]
        with pytest.raises(StopAsyncIteration):
            await values.asend("enough")
        left = showing(numbers, ("stdout", "stderr"), "head")()
        heard.append(await anext(left))
        await left.aclose()
        with pytest.raises(KeyError, match="thrown"):
            failing = showing(numbers, ("stdout", "stderr"), "head")()
            await anext(failing)
            await failing.athrow(KeyError("thrown"))
        return heard

    quiet = [True, True]
    assert asyncio.run(use()) == [("nothing", quiet), (5, quiet), ("no", quiet), ("nothing", quiet)]
    assert closed == [quiet] * 3 and hidden() == [False, False]


def test_what_c_code_writes_is_dropped_and_comes_again_after_an_error(at, capfd):
    at(1)

    def fail():
        os.write(1, b"from C\n")
        os.write(2, b"to stderr\n")
        raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        showing(fail, ("stdout",), "head")()
    os.write(1, b"after\n")
    assert capfd.readouterr() == ("after\n", "to stderr\n")


def test_outside_a_pool_and_within_one_another(at):
    at(1)
    inner = showing(hidden, ("stdout",), "head")
    outer = showing(lambda: [*inner(), *hidden()], ("stdout", "stderr"), 3)
    assert outer() == [True, True, True, True]
    assert hidden() == [False, False]
    event_sink.connect(None)
    assert outer() == [False] * 4


def test_of_functions_that_overlap_the_last_one_lets_output_go_on(at, tmp_path):
    at(1)
    path = tmp_path / "out"
    kept = os.dup(1)
    with path.open("wb", buffering=0) as out:
        os.dup2(out.fileno(), 1)
    try:

        async def first():
            both.set()
            await over.wait()

        async def second():
            await both.wait()
            over.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(hidden())
            os.write(1, b"dropped")

        async def run():
            quiet = [showing(each, ("stdout",), "none") for each in (first, second)]
            await asyncio.gather(*(each() for each in quiet))

        both, over, seen = asyncio.Event(), asyncio.Event(), []
        asyncio.run(run())
        os.write(1, b"shown")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert path.read_bytes() == b"shown"
    assert seen == [[True, False]] and hidden() == [False, False]


def test_a_function_that_outlives_its_run_shows_nothing_that_a_later_one_hides(monkeypatch):
    monkeypatch.setattr(event_sink, "_hidden", {})
    earlier = event_sink.hide(("stdout",))
    event_sink.begin(2)
    later = event_sink.hide(("stdout",))
    event_sink.show(earlier)
    assert event_sink.is_hidden("stdout")
    event_sink.show(later)
    assert not event_sink.is_hidden("stdout")
