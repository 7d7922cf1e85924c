"""Cases are made of the calls that are made: they are recorded, scene by scene."""

from __future__ import annotations

import pytest
from cloud.cases import IMAGES, OTHERS, POOLS, SWEEPS, calls_of
from cloud.scenes import scene_of

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("quotas")]


IN_OTHERS = (
    "placed",
    "started",
    "baked",
    "unbaked",
    "half baked",
    "ended",
    "one",
    "two",
    "spot",
    "quota",
    "sweep",
    "sweep without a record",
    "replacement",
)
"""Scenes whose calls are made in others, too: `boot`, `stopped`, those of the sample, `test_baked_pools`, `test_warm_pools`,
and, of the last, `test_a_machine_that_was_taken_back_has_another_in_its_place`."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.extensive if each in IN_OTHERS else ())
        for each in (*POOLS, *OTHERS)
    ],
)
def test_the_calls_are_those_that_cases_are_made_of(name, shared_cloud, people):
    cloud, person, scene = shared_cloud, people.person(), scene_of(name)
    begun = scene.begin(cloud, person)
    before = len(cloud.calls)
    ended = scene.go_on(cloud, person, begun)
    assert ended.code == (3 if name == "boot" else 0), ended
    is_used = name not in ("boot", "ended", "unbaked", "half baked", *SWEEPS)
    assert not is_used or "ran" in ended.said
    made = [each.action for each in cloud.calls[before:]]
    wanted = calls_of(name)
    assert set(made) == set(wanted)
    few = {each: made.count(each) for each, times in wanted.items() if made.count(each) < times}
    assert not few, made
    if name in ("stopped", "started"):
        assert person.does("sweep", now=True).code == 0
        assert person.does("sweep").code == 0
    if name in IMAGES:
        assert person.does("unbake", name="torch").code == 0
    cloud.nothing_left()
