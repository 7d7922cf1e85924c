"""Calls whose ranks go on from a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from leaks import leaves_nothing

import skyward_nb as sky
from skyward_nb.pickling.home_namespace import home
from skyward_nb.words.errors import OptionError, PoolError


def kept(number):
    home()["total"] = number + sky.rank()
    return sky.checkpoint()


def total():
    return home()["total"]


def test_ranks_of_another_pool_of_the_name_have_what_these_had(tmp_path):
    place = tmp_path / "kept"
    with leaves_nothing():
        with sky.Compute(nodes=2, checkpoint=place, name="mine", quiet=True) as pool:
            (at, _) = sky.function(kept)(3) @ pool
            assert at.startswith(f"{place}/mine/mine-")
        with sky.Compute(
            nodes=2, checkpoint=str(place), resume=True, name="mine", quiet=True
        ) as pool:
            assert list(sky.function(total)() @ pool) == [3, 4]


def test_a_pool_of_calls_whose_names_cannot_be_had_ends(tmp_path):
    with leaves_nothing():
        with sky.Compute(nodes=1, checkpoint=tmp_path, name="mine", quiet=True) as pool:
            (at,) = sky.function(kept)(3) @ pool
        Path(at, "rank-0.names").write_bytes(b"?")
        with (
            pytest.raises(PoolError, match=r"It has total. A pool without resume begins without"),
            sky.Compute(nodes=1, checkpoint=tmp_path, resume=True, name="mine", quiet=True),
        ):
            pass


def grown(number):
    """Adds to a name of this rank; the second rank dies at 3."""
    names = home()
    names["total"] = names.get("total", 0) + number
    if number == 3 and sky.rank() == 1:
        os._exit(1)
    return names["total"], sky.checkpoint()


def added(number):
    home()["total"] += number
    return home()["total"]


def test_calls_go_on_from_it_once_ranks_are_begun_anew(tmp_path):
    place = tmp_path / "kept"
    with leaves_nothing(), sky.Compute(nodes=2, checkpoint=place, quiet=True) as pool:
        for number in (1, 2):
            sky.function(grown)(number) @ pool
        with pytest.raises(sky.RankDied):
            sky.function(grown)(3) @ pool
        calls = [sky.function(added)(10), sky.function(added)(10)]
        assert list(sky.gather(*calls) >> pool) == [13, 13], "one of them has ranks go on, once"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"checkpoint": "kept"}, "checkpoint=kept: ranks may work in other folders"),
        ({"checkpoint": 3}, "checkpoint=3"),
        ({"resume": True}, "resume needs a checkpoint to go on from: add checkpoint=..."),
    ],
    ids=["relative", "number", "alone"],
)
def test_what_cannot_be_is_refused(given, why):
    with pytest.raises(OptionError) as told:
        sky.Compute(**given)
    assert told.value.message.startswith(why)
