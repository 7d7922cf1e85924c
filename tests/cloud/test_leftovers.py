"""Whatever becomes of whichever call, and of whoever makes it: nothing is left in the cloud.

`--all` plays all cases, `--cloud-faults=PATH` also writes what came of them, and goes on where a run before it ended; else a
sample is played.
"""

from __future__ import annotations

import itertools
import re

import pytest
from cloud.cases import IMAGES, OTHERS, POOLS, Case, all_cases, calls_of, sample
from cloud.played import Played
from cloud.scenes import scene_of

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("quotas")]
_FORGOTTEN_AFTER = 25
_MAY_COME = re.compile("if EC2 (has made it|begins them late)")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        config, cases = metafunc.config, sample()
        if config.getoption("--all", default=None):
            cases = all_cases()
        if config.getoption("--cloud-faults", default=None):
            known = Played(config.rootpath).codes()
            cases = [each for each in all_cases() if str(each) not in known]
        metafunc.parametrize("case", cases, ids=str)


def costs(cloud):
    """What of all that is left is paid for, but for Elastic IP addresses, which nothing but a sweep releases."""
    kinds = ("machines", "volumes", "interfaces")
    return {kind: names for kind, names in cloud.left().items() if kind in kinds}


@pytest.fixture(scope="module")
def numbers():
    return itertools.count(1)


@pytest.fixture
def fresh_cloud(shared_cloud, numbers):
    """The cloud, forgotten now and then: a call takes the longer, the more machines have ended there."""
    if next(numbers) % _FORGOTTEN_AFTER == 0:
        shared_cloud.reset()
    return shared_cloud


def test_nothing_is_left(case: Case, fresh_cloud, people, played):
    cloud, person, scene = fresh_cloud, people.person(), scene_of(case.scene)
    try:
        begun = scene.begin(cloud, person)
        cloud.fail(case.action, case.how, skip=case.skip, after=case.after, delay=case.delay)
        if case.lasting:
            cloud.fail("", case.how, times=0, since=case.action)
        ended = scene.go_on(cloud, person, begun)
        assert cloud.calm(), f"there was no such call: {ended}"
        # Who has all answers may be done before it is killed.
        done = 3 if case.scene == "boot" else 0
        wanted = ((-9, done) if case.how == "answered" else (-9,)) if case.is_kill else (0, 3)
        assert ended.code in wanted, ended
        if case.order == "sweep first":
            swept = person.does("sweep")
            assert swept.code == 0, swept
        cloud.leases_run_out()
        assert not costs(cloud), costs(cloud)
        swept = person.does("sweep")
        assert swept.code == 0, swept
        if case.scene in IMAGES:
            # A whole image is meant to stay: no sweep removes it.
            removed = person.does("unbake", name="torch")
            # For two minutes, one that may have been asked for may still come, and its snapshots.
            assert removed.code == 0 or _MAY_COME.search(removed.said), removed
        cloud.nothing_left()
        if played is not None:
            played.note(str(case), ended.code)
    except BaseException:
        cloud.calm()
        cloud.reset()
        raise


def test_there_are_cases_enough_and_they_are_always_the_same():
    cases = all_cases()
    assert cases == all_cases()
    assert len(cases) >= 200
    assert len(set(map(str, cases))) == len(cases)
    for scenes in (POOLS, *({name} for name in OTHERS)):
        killed = {each.action for each in cases if each.is_kill and each.scene in scenes}
        assert killed == {
            action for name in scenes for action, times in calls_of(name).items() if times
        }
