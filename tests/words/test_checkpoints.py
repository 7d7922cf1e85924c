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


OLD = seen("old", part(0, 1.0), part(1, 2.0))
OTHER = seen("other", part(0, 5.0, pool="p-2"), part(1, 5.0, pool="p-2"))
HALF = seen("half", part(0, 9.0))
EMPTY = seen("empty", part(0, 8.0, names=()), part(1, 8.0, names=()))


@pytest.mark.parametrize(
    ("found", "pool", "key"),
    [
        ([[OLD, OTHER, HALF, EMPTY]] * 2, "", "other"),
        ([[OLD, OTHER, HALF, EMPTY]] * 2, "p-1", "old"),
        ([[OLD, OTHER], [OLD]], "", "old"),
        ([[HALF], [seen("half", part(1, 9.0))]], "", None),
        ([[OTHER]], "p-1", None),
        ([[], []], "", None),
        ([], "", None),
    ],
    ids=["newest", "own", "seen by all", "not one folder", "of others", "none", "nobody"],
)
def test_the_newest_that_all_see_whole(found, pool, key):
    chosen = newest(found, pool)
    assert (chosen and chosen.key) == key


def test_what_is_not_kept():
    newer = seen("newer", part(0, 6.0), part(1, 6.0))
    began = seen("began", part(0, 7.0))
    stale = seen("stale", part(1, 3.0))
    assert outdated([OLD, OTHER, newer, began, stale]) == ["old", "stale"]
    assert outdated([began, stale]) == []


def test_contents_in_words():
    left = (NotKept("f", "generator"),)
    parts = [part(0, 1.0, names="ab", left_out=left), part(1, 1.0, names="bc", states=("m",))]
    assert spell_contents(parts) == "3 names, 2 kB; of m the state alone; left out: f (generator)"
    many = tuple(NotKept(f"n{number}", "socket") for number in range(7))
    assert spell_contents([part(0, 1.0, left_out=many)]).endswith("n4 (socket) and 2 more")


def test_keys_sort_by_generation_and_run():
    keys = [key_of("p", 1, 2, 1), key_of("p", 1, 10, 1), notice_key("p", 1), key_of("p", 2, 3, 1)]
    assert keys == sorted(keys, key=lambda key: (key[:7], "notice" in key, key))
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
