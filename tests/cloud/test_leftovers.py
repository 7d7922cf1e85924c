"""Whatever becomes of whichever call, and of whoever makes it: nothing is left in the cloud.

`--cloud-faults=PATH` plays all cases and writes what came of them; else a sample is played.
"""

from __future__ import annotations

import pytest
from cloud.cases import CALLS, POOLS, Case, all_cases, calls_of, sample
from cloud.people import People

pytestmark = pytest.mark.timeout(200)


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        takes_all = metafunc.config.getoption("--cloud-faults", default=None)
        metafunc.parametrize("case", all_cases() if takes_all else sample(), ids=str)


@pytest.fixture(scope="module")
def people(shared_cloud):
    made = People(shared_cloud)
    yield made
    made.close()


def costs(cloud):
    """What of all that is left is paid for."""
    kinds = ("machines", "volumes", "interfaces", "addresses")
    return {kind: names for kind, names in cloud.left().items() if kind in kinds}


def test_nothing_is_left(case: Case, shared_cloud, people, cloud_results):
    cloud, person = shared_cloud, people.person()
    try:
        how = {"skip": case.skip, "after": case.after, "delay": case.delay}
        cloud.fail(case.action, case.how, **how)
        if case.lasting:
            cloud.fail("", case.how, times=0, since=case.action)
        ended = person.does("pool", **POOLS[case.pool])
        assert cloud.calm(), f"there was no such call: {ended}"
        # Who has all answers may be done before it is killed.
        wanted = ((-9, 0) if case.how == "answered" else (-9,)) if case.is_kill else (0, 3)
        assert ended.code in wanted, ended
        if case.order == "sweep first":
            swept = person.does("sweep")
            assert swept.code == 0, swept
        cloud.leases_run_out()
        assert not costs(cloud), costs(cloud)
        swept = person.does("sweep")
        assert swept.code == 0, swept
        cloud.nothing_left()
        cloud_results.append((case, ended))
    except BaseException:
        cloud.calm()
        cloud.reset()
        raise


@pytest.mark.parametrize("name", POOLS)
def test_the_calls_are_those_that_cases_are_made_of(name, shared_cloud, people):
    before = len(shared_cloud.calls)
    ended = people.person().does("pool", **POOLS[name])
    assert ended.code == 0 and "ran" in ended.said, ended
    made = [each.action for each in shared_cloud.calls[before:]]
    wanted = calls_of(name)
    assert set(made) == wanted
    assert all(made.count(each) >= CALLS[each][1] for each in wanted), made
    shared_cloud.nothing_left()


def test_there_are_cases_enough_and_they_are_always_the_same():
    cases = all_cases()
    assert cases == all_cases()
    assert len(cases) >= 200
    assert len(set(map(str, cases))) == len(cases)
    assert {each.action for each in cases if each.is_kill} == set(CALLS)
