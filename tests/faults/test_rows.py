"""Every fault in every moment as a row against what a pool decides, in simulated time: see `simulated`.

`test_matrix` plays the same on real processes: of each fault one case, all of them with `--all`.
"""

from __future__ import annotations

import pytest
from faults import simulated
from faults.hands import FROZEN_FOR
from faults.matrix import Case, End, Fault, Moment, all_cases
from faults.stand import grace_of

SETTLE, CUT_AFTER, LOOK = 0.25, 0.3, 1.5
"""Seconds until others are interrupted, until those that wait in a collective cut it, and until ranks
have to have said where they are when the time is over."""
A_MOMENT = 0.1


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_a_pool_decides_what_is_stated(case: Case):
    end, machines = simulated.play(case)
    assert end is case.end
    if case.keeps_all:
        assert not machines.run.lost
    if end is End.DIED and machines.ended is not None:
        assert list(machines.run.lost.keys() - machines.run.killed) == [case.victim]
    if machines.ended is not None:
        assert machines.ended - simulated.STRIKES <= _limit(case)
    simulated.restored(case, machines)


def _limit(case: Case) -> float:
    """Seconds within which a run has ended after its fault, if each does what it is to do at once."""
    if case.fault in simulated.STUCK or case.moment is Moment.STOPPING:
        return grace_of(case) + A_MOMENT
    if case.fault is Fault.TIMEOUT:
        return LOOK + 2 * CUT_AFTER + A_MOMENT
    return max(SETTLE + 2 * CUT_AFTER, FROZEN_FOR) + A_MOMENT


@pytest.mark.parametrize("size", [1, 4, 16])
def test_ranks_that_end_in_time_live_on_however_late_that_is_heard(size):
    case = Case(Fault.INTERRUPT, Moment.RUNNING, size)
    machines = simulated.Machines(case, last_words_take=2 * grace_of(case))
    machines.begin()
    machines.strike()
    machines.play(until=100)
    assert simulated.end_of(machines) is End.INTERRUPTED
    assert not machines.run.lost and not machines.run.killed
    assert sorted(machines.run.done) == list(range(size))
