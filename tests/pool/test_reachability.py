"""Which addresses machines meet at, and what is said when they do not."""

import pytest

from skyward_nb.pool.reachability import MachinesUnreachable, shared_endpoints
from skyward_nb.protocol.message_parts import Endpoint
from skyward_nb.words.findings import ReachResult

NAMES = ("gpu1", "gpu2", "gpu3")


def endpoints(number, *addresses):
    return tuple(
        Endpoint(number * 10 + at, address, f"eth{at}", 5000)
        for at, address in enumerate(addresses)
    )


def ways(there, *, blocked=()):
    """What each machine reaches: all of the others' endpoints but those of `blocked` (from, endpoint)."""
    return {
        number: tuple(
            ReachResult(
                endpoint.number,
                trouble="no answer in 4 s" if (number, endpoint.number) in blocked else "",
            )
            for other, each in there.items()
            if other != number
            for endpoint in each
        )
        for number in there
    }


def chosen(there, **how):
    return [endpoint.address for endpoint in shared_endpoints(NAMES, there, ways(there, **how))]


THERE = {
    0: endpoints(0, "172.17.0.1", "10.0.0.1", "fd00::1"),
    1: endpoints(1, "172.17.0.1", "10.0.0.2", "fd00::2"),
    2: endpoints(2, "10.0.0.3", "fd00::3"),
}


def blocked(*numbers):
    return {(machine, number) for machine in THERE for number in numbers}


def test_the_first_that_all_others_reach_is_taken():
    assert chosen(THERE) == ["172.17.0.1", "172.17.0.1", "10.0.0.3"]
    no_bridges = blocked(0, 10)
    assert chosen(THERE, blocked=no_bridges) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_one_that_a_single_machine_does_not_reach_is_not_taken():
    assert chosen(THERE, blocked={(2, 0), (0, 10)}) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_all_are_of_one_family():
    only_six = blocked(0, 1)
    assert chosen(THERE, blocked=only_six) == ["fd00::1", "fd00::2", "fd00::3"]


def test_who_does_not_reach_whom_is_told():
    apart = {(2, endpoint.number) for endpoint in THERE[0]}
    with pytest.raises(MachinesUnreachable) as raised:
        chosen(THERE, blocked=apart)
    assert str(raised.value) == (
        "gpu3 does not reach gpu1 (172.17.0.1: no answer in 4 s, 10.0.0.1: no answer in 4 s, "
        "fd00::1: no answer in 4 s)"
    )


def test_what_has_no_address_or_does_not_answer_is_told():
    with pytest.raises(MachinesUnreachable, match="gpu2 has no address of a private network"):
        chosen(THERE | {1: ()})
    said = ways(THERE)
    del said[1]
    with pytest.raises(MachinesUnreachable, match=r"^gpu2 did not say whom it reaches$"):
        shared_endpoints(NAMES, THERE, said)


def test_many_pairs_are_counted():
    everyone = {(m, endpoint.number) for m in THERE for each in THERE.values() for endpoint in each}
    with pytest.raises(MachinesUnreachable, match="; and 2 more pairs"):
        chosen(THERE, blocked=everyone)
