"""Whatever becomes of whichever call, and of whoever makes it: nothing is left in the cloud.

`--all` plays all cases, `--cloud-faults=PATH` also writes what came of them; else a sample is played.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloud.cases import OTHERS, POOLS, SWEEPS, Case, Played, all_cases, calls_of, sample
from cloud.people import Begun, Ended, Person
from cloud.quotas import PLENTY, code
from cloud.sky import Cloud

pytestmark = pytest.mark.timeout(200)


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        options = ("--all", "--cloud-faults")
        takes_all = any(metafunc.config.getoption(each, default=None) for each in options)
        metafunc.parametrize("case", all_cases() if takes_all else sample(), ids=str)


IN_OTHERS = ("one", "two", "spot", "quota", "sweep", "sweep without a record", "replacement")
"""Scenes whose calls are made in others, too: `placed`, `boot`, those of the sample, and, of the last,
`test_a_machine_that_was_taken_back_has_another_in_its_place`."""


def costs(cloud):
    """What of all that is left is paid for."""
    kinds = ("machines", "volumes", "interfaces", "addresses")
    return {kind: names for kind, names in cloud.left().items() if kind in kinds}


@dataclass(frozen=True)
class Scene:
    """What somebody does whose calls are meant: `begin` is what they do before, `go_on` the rest."""

    begin: Callable[[Cloud, Person], Begun | None]
    go_on: Callable[[Cloud, Person, Begun | None], Ended]


def scene_of(name: str) -> Scene:
    if name in POOLS:
        return Scene(lambda *_: None, lambda cloud, person, _: person.does("pool", **POOLS[name]))
    if name == "quota":
        return Scene(without_spot, lambda cloud, person, _: person.does("pool", **POOLS["spot"]))
    if name == "boot":
        # Its user-data fails on who is not there.
        return Scene(
            lambda *_: None, lambda cloud, person, _: person.does("pool", user="nobody-here")
        )
    if name == "replacement":
        return Scene(with_two, without_one)
    has_record = name == "sweep"
    return Scene(
        lambda cloud, person: leave(cloud, person, has_record=has_record),
        lambda cloud, person, _: person.does("sweep"),
    )


def without_spot(cloud: Cloud, person: Person) -> None:
    """The account may have no machine as spot."""
    cloud.quota(code("c6i.large", spot=True), 0)


def with_two(cloud: Cloud, person: Person) -> Begun:
    """Somebody has two machines."""
    return person.begin("replaced").up()


def without_one(cloud: Cloud, person: Person, begun: Begun | None) -> Ended:
    """EC2 takes one of them back."""
    assert begun is not None
    cloud.machines[0].reclaim()
    return begun.ended()


def leave(cloud: Cloud, person: Person, *, has_record: bool) -> None:
    """Somebody is killed who has machines in groups of both kinds."""
    cloud.kill("TerminateInstances", "before")
    assert person.does("pool", **POOLS["placed"]).code == -9
    assert cloud.calm()
    if not has_record:
        (entry,) = Path(person.env["SKYWARD_STATE_DIR"]).glob("aws/*/record.json")
        shutil.rmtree(entry.parent)


@pytest.fixture(autouse=True)
def quotas(shared_cloud):
    """They are as before."""
    yield
    shared_cloud.quota(code("c6i.large", spot=True), PLENTY)


def test_nothing_is_left(case: Case, shared_cloud, people, played):
    cloud, person, scene = shared_cloud, people.person(), scene_of(case.scene)
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
        cloud.nothing_left()
        played(Played(all_cases().index(case), ended.code))
    except BaseException:
        cloud.calm()
        cloud.reset()
        raise


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
    assert name in ("boot", *SWEEPS) or "ran" in ended.said
    made = [each.action for each in cloud.calls[before:]]
    wanted = calls_of(name)
    assert set(made) == set(wanted)
    assert all(made.count(each) >= times for each, times in wanted.items()), made
    cloud.nothing_left()


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
