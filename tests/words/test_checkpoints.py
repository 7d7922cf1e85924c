"""Checkpoints in words, and which one ranks go on from."""

from __future__ import annotations

import pickle

import pytest

from skyward_nb.words.checkpoints import (
    CheckpointPart,
    NotKept,
    SeenCheckpoint,
    StoppedAtNotice,
    end_of_time,
    is_part,
    key_of,
    newest,
    notice_key,
    outdated,
    read_place,
    spell_contents,
    time_before_stop,
)
from skyward_nb.words.errors import OptionError


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/shared/kept/", "/shared/kept"),
        ("~/kept", "~/kept"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket//a/b/", "s3://bucket/a/b"),
    ],
)
def test_a_place_has_one_spelling(text, place):
    assert read_place("checkpoint", text) == place


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("kept", "give the whole path, such as checkpoint=~/kept"),
        ("./kept", "checkpoint=~/kept"),
        ("~joe/kept", "checkpoint=~/kept"),
        ("~", "checkpoint=~/checkpoints"),
        (".", "checkpoint=~/checkpoints"),
        ("gs://bucket/kept", "checkpoint=s3://bucket/prefix"),
        ("s3:///kept", "checkpoint=s3://bucket/prefix"),
        ("s3://bucket/../kept", "checkpoint=s3://bucket/prefix"),
    ],
)
def test_what_is_no_place_is_told_with_one_that_is(text, advice):
    with pytest.raises(OptionError) as told:
        read_place("checkpoint", text)
    assert told.value.message.startswith(f"checkpoint={text}: ") and advice in told.value.message


def part(rank, at, *, world=2, pool="p-1", names=("x",), **more):
    given = {"generation": 1, "run": 1, "python": "3.12.1", "digest": "", "size": 1000, **more}
    return CheckpointPart(
        pool_id=pool, rank=rank, world_size=world, at=at, names=tuple(names), **given
    )


def seen(key, *parts):
    return SeenCheckpoint(key, parts)


def whole(run, at, *, pool="p-1", generation=1, count=1):
    return seen(key_of(pool, generation, run, count), *(part(n, at, pool=pool) for n in (0, 1)))


HALF_KEY = key_of("p-1", 1, 9, 1)
OLD = whole(1, 2.0)
NEW = whole(2, 1.0)  # by a clock that is behind
OTHER = whole(7, 5.0, pool="p-2")
THIRD = whole(1, 6.0, pool="p-3")
HALF = seen(HALF_KEY, part(0, 9.0))
BEGUN = seen(key_of("p-1", 1, 1, 2))
EMPTY = seen(key_of("p-1", 1, 8, 1), part(0, 8.0, names=()), part(1, 8.0, names=()))
NOTICED = seen(notice_key("p-1", 1, 2), part(0, 3.0), part(1, 3.0))
ALL = [OLD, NEW, OTHER, THIRD, HALF, BEGUN, EMPTY]


@pytest.mark.parametrize(
    ("found", "more", "chosen"),
    [
        ([ALL] * 2, {}, NEW),
        ([[*ALL, NOTICED]] * 2, {}, NOTICED),
        ([ALL] * 2, {"or_others": True}, NEW),
        ([[OLD, NEW, OTHER], [OLD]], {}, OLD),
        ([[HALF], [seen(HALF_KEY, part(1, 9.0))]], {}, None),
        ([[OTHER, THIRD]], {}, None),
        ([[OTHER, THIRD]], {"or_others": True}, THIRD),
        ([[OLD, OTHER]], {"since": 2}, None),
        ([[OLD, whole(3, 1.0, generation=2)]], {"since": 2}, whole(3, 1.0, generation=2)),
        ([[], []], {}, None),
        ([], {}, None),
    ],
    ids=[
        "newest by run", "at notice", "own before others'", "seen by all", "not one folder", "others'", "of who wrote last",
        "before a restart", "since a restart", "none", "nobody",
    ],
)  # fmt: skip
def test_the_newest_that_all_see_whole(found, more, chosen):
    assert newest(found, "p-1", **more) == chosen


def test_what_is_not_kept_is_a_pools_own_and_older():
    newest_own = whole(10, 0.0)
    found = [OLD, NEW, newest_own, OTHER, THIRD, BEGUN, seen(key_of("p-1", 1, 11, 1), part(0, 0.0))]
    assert outdated(found, "p-1") == [OLD.key, BEGUN.key]
    assert outdated([HALF, BEGUN, OTHER], "p-1") == []


def test_contents_in_words():
    left = (NotKept("f", "generator"),)
    parts = [part(0, 1.0, names="ab", left_out=left), part(1, 1.0, names="bc", states=("m",))]
    assert spell_contents(parts) == "3 names, 2 kB; of m the state alone; left out: f (generator)"
    many = tuple(NotKept(f"n{number}", "socket") for number in range(7))
    assert spell_contents([part(0, 1.0, left_out=many)]).endswith("n4 (socket) and 2 more")


def test_checkpoints_of_a_pool_are_in_order_by_their_keys():
    keys = [
        key_of("p-g0009-r000009-9", 1, 2, 9), key_of("p-g0009-r000009-9", 1, 2, 10), notice_key("p-g0009-r000009-9", 1, 2),
        key_of("p-g0009-r000009-9", 1, 10, 1), key_of("p-g0009-r000009-9", 2, 3, 1),
        key_of("p-g0009-r000009-9", 10_000, 1_000_000, 1),
    ]  # fmt: skip
    found = [seen(key) for key in keys]
    assert sorted([*found[3:], *found[:3]], key=lambda each: each.order) == found
    assert {each.pool_id for each in found} == {"p-g0009-r000009-9"}
    assert seen("package").pool_id == "" and not seen("package").is_whole
    assert is_part(keys[0], "rank-0.json") and not is_part(keys[0], "package.json")
    assert not is_part("package", "rank-0.json")


def test_the_end_of_a_machine_is_read():
    assert end_of_time("2026-11-22T10:00:00Z") == 1795341600
    assert end_of_time("soon") is None


@pytest.mark.parametrize(
    ("end", "seconds"), [(None, 0.0), (160.0, 30.0), (90.0, 0.0), (10_000.0, 60.0)]
)
def test_a_cell_goes_on_for_half_of_the_time(end, seconds):
    assert time_before_stop(100.0, end) == seconds


def test_the_error_travels():
    again = pickle.loads(pickle.dumps(StoppedAtNotice("gpu1 is taken back")))
    assert str(again).startswith("the cell was stopped") and again.why == "gpu1 is taken back"
