"""Several who rent at once, clocks that are wrong, people who never come back: nothing is left."""

from __future__ import annotations

import pytest
from tiers import few

pytestmark = pytest.mark.timeout(200)
_DAY = 86400.0


@pytest.fixture
def cloud(shared_cloud):
    shared_cloud.reset()
    yield shared_cloud
    shared_cloud.nothing_left()


def test_a_sweep_alone_ends_what_is_no_pool_yet(cloud, people):
    cloud.kill("RunInstances", "answered")
    person = people.person()
    assert person.does("pool", nodes=2).code == -9
    assert person.does("sweep").code == 0
    assert "machines" not in cloud.left()
    assert person.does("sweep").code == 0
    cloud.nothing_left()


@pytest.mark.extensive
def test_two_processes_bring_up_the_same_pool_at_once(cloud, people):
    person = people.person()
    begun = [person.begin("pool") for _ in range(2)]
    for each in begun:
        ended = each.ended()
        assert ended.code == 0, ended
    assert cloud.actions().count("RunInstances") == 2
    cloud.nothing_left()


def test_one_of_two_is_killed_and_the_other_one_is_left_alone(cloud, people):
    person = people.person()
    cloud.kill("TerminateInstances", "before")
    begun = [person.begin("pool") for _ in range(2)]
    codes = sorted(each.ended().code for each in begun)
    assert codes == [-9, 0]
    cloud.leases_run_out()
    assert person.does("sweep").code == 0
    cloud.nothing_left()


def test_sweeps_beside_a_launch_take_nothing_from_it(cloud, people):
    """Whoever sweeps looks at machines of a launch whose record is written just now."""
    person = people.person()
    cloud.late(1)
    begun = person.begin("pool", nodes=2)
    for _ in range(4):
        assert person.does("sweep").code == 0
    ended = begun.ended()
    assert ended.code == 0, ended
    cloud.nothing_left()


@pytest.mark.parametrize(
    ("action", "skew"),
    few(
        1,
        [
            ("RunInstances", 2 * _DAY),
            ("TerminateInstances", -2 * _DAY),
            *(
                pytest.param(action, skew, marks=pytest.mark.extensive)
                for action, skew in [
                    ("RunInstances", -2 * _DAY),
                    ("RunInstances", -3600.0),
                    ("RunInstances", 3600.0),
                    ("TerminateInstances", -3600.0),
                    ("TerminateInstances", 3600.0),
                    ("TerminateInstances", 2 * _DAY),
                ]
            ),
        ],
    ),
)
def test_a_clock_is_wrong_and_whoever_had_it_is_killed(cloud, people, action, skew):
    cloud.kill(action, "sent")
    person = people.person()
    assert person.does("pool", skew=skew).code == -9
    cloud.leases_run_out()
    assert not {"machines", "volumes", "interfaces"} & set(cloud.left())
    assert person.does("sweep").code == 0
    cloud.nothing_left()


def test_user_data_that_fails_ends_its_machine(cloud, people):
    """Nobody can log in to it, so it does not stay."""
    cloud.kill("RunInstances", "answered", delay=0.0)
    person = people.person()
    assert person.does("pool", user="nobody-here").code == -9
    cloud.ask("settled")
    cloud.up(0)
    assert set(cloud.left()) == {"groups"}
    assert person.does("sweep").code == 0
    cloud.nothing_left()


def test_machines_that_never_answer_are_given_back(cloud, people):
    cloud.dead()
    ended = people.person().does("pool", nodes=2, answers_within=1.0)
    assert ended.code == 3, ended
    cloud.nothing_left()


def test_what_is_left_would_be_seen_and_groups_that_linger_are_removed_by_who_comes_next(
    cloud, people
):
    """The check of all these tests: without leases and a sweep there is something."""
    person = people.person()
    cloud.kill("RunInstances", "sent")
    assert person.does("pool").code == -9
    assert {"machines", "volumes", "interfaces", "groups"} <= set(cloud.left())
    cloud.lingering(1)
    cloud.leases_run_out()
    assert set(cloud.left()) == {"groups"}
    assert person.does("sweep").code == 0
    assert set(cloud.left()) == {"groups"}
    cloud.lingering(0)
    ended = person.does("pool")
    assert ended.code == 0, ended
    cloud.nothing_left()


def test_keys_that_are_over_from_the_launch_on(cloud, people):
    """They are renewed later: what was left meanwhile is found then."""
    person = people.person()
    cloud.kill("RunInstances", "sent")
    assert person.does("pool").code == -9
    cloud.fail("", "RequestExpired", times=0)
    assert person.does("sweep").code == 0
    assert "machines" in cloud.left()
    cloud.calm()
    assert person.does("sweep").code == 0
    cloud.leases_run_out()
    assert person.does("sweep").code == 0
    cloud.nothing_left()
