"""Documents are decoded as a class by the first threads that ask for it, all at once."""

import sys
import threading
from functools import partial

import msgspec
import pytest

from skyward_nb.words.decoding import converted, from_json, from_msgpack

CLASS = """
class A{n}(msgspec.Struct):
    x: int = 0
    y: list[str] | None = None
    z: dict[str, int] | None = None
    w: {below} = {default}
"""
DEPTH = 12
PLAIN = {"x": 1, "y": ["a"], "z": {"a": 1}, "w": {"x": 2, "w": {"x": 3}}}


@pytest.fixture
def switching():
    """Threads take turns so often that each is interrupted while it prepares a class."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def fresh():
    """A class that refers to others, none of which anything was decoded as."""
    made = {"msgspec": msgspec}
    for n in range(DEPTH):
        below, default = (f"A{n - 1} | None", "None") if n else ("int", "0")
        exec(CLASS.format(n=n, below=below, default=default), made)
    return made[f"A{DEPTH - 1}"]


def at_once(*calls):
    barrier = threading.Barrier(len(calls))
    found = []

    def one(call):
        barrier.wait()
        found.append(call())

    threads = [threading.Thread(target=one, args=(call,)) for call in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


def test_threads_that_decode_a_class_at_once_get_what_was_sent(switching):
    text, packed = msgspec.json.encode(PLAIN), msgspec.msgpack.encode(PLAIN)
    for _ in range(50):
        kind = fresh()
        found = at_once(
            partial(from_json, text, kind),
            partial(from_msgpack, packed, kind),
            partial(converted, PLAIN, kind),
            partial(from_json, text, kind),
        )
        assert len(found) == 4
        assert all(each == found[0] for each in found)
        assert found[0].w.w.x == 3


def test_what_is_of_another_kind_is_refused():
    with pytest.raises(msgspec.ValidationError):
        from_json(b'"3"', int)
    assert from_json(b'"3"', int, strict=False) == 3
    with pytest.raises(msgspec.DecodeError):
        from_msgpack(b"", int)
