"""Whoever gets another machine for one that was taken back is killed, or refused: nothing is left."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timeout(200)


@pytest.fixture
def cloud(shared_cloud):
    shared_cloud.reset()
    yield shared_cloud
    shared_cloud.nothing_left()


@pytest.mark.parametrize(
    "when",
    [
        "sent",
        *(
            pytest.param(each, marks=pytest.mark.extensive)
            for each in ("before", "answered", "as it boots", "TerminateInstances")
        ),
    ],
)
def test_who_gets_another_machine_for_one_that_was_taken_back_is_killed(cloud, people, when):
    person = people.person()
    begun = person.begin("replaced").up()
    first, _ = cloud.machines
    if when == "TerminateInstances":
        cloud.kill(when, "before")
    elif when == "as it boots":
        cloud.kill("RunInstances", "answered", delay=1.5)
    else:
        cloud.kill("RunInstances", when)
    first.reclaim()
    ended = begun.ended()
    assert ended.code == -9, ended
    assert person.does("sweep").code == 0
    cloud.leases_run_out()
    assert not {"machines", "volumes", "interfaces"} & set(cloud.left())
    assert person.does("sweep").code == 0
    cloud.nothing_left()


@pytest.mark.extensive
@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "UnauthorizedOperation"])
def test_another_machine_is_refused_and_nothing_is_left(cloud, people, code):
    person = people.person()
    begun = person.begin("replaced").up()
    first, _ = cloud.machines
    cloud.fail("RunInstances", code, times=0)
    first.reclaim()
    ended = begun.ended()
    assert ended.code == 3, ended
    assert "NotReplaced: pool 'default' lacks node" in ended.said
    cloud.nothing_left()
