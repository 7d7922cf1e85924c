"""Which ranks are free, and who is next."""

import threading

import pytest
from waiting import until

from skyward_nb.functions.rank_slots import RankSlots, SlotDeadlock

NODES = {0: 0, 1: 0, 2: 1, 3: 1}


def test_the_least_busy_node_is_taken():
    slots = RankSlots(NODES)
    assert [slots.claim(range(4)) for _ in range(4)] == [(0,), (2,), (1,), (3,)]
    assert slots.try_claim(range(4)) == ()
    slots.release((1,))
    assert slots.claim((1, 3)) == (1,)


def test_all_of_them_wait_for_all():
    slots = RankSlots(NODES)
    slots.claim((2,))
    taken = []
    thread = threading.Thread(target=lambda: taken.append(slots.claim(range(4), all_of=True)))
    thread.start()
    until(lambda: slots._queue)
    # Who comes later does not overtake: else all would never be free.
    assert slots.try_claim((0,)) == ()
    assert not taken
    slots.release((2,))
    thread.join(60)
    assert taken == [(0, 1, 2, 3)]


def test_who_holds_what_others_wait_for_is_not_behind_them():
    """As who reads a rank's generator, and calls others meanwhile."""
    slots = RankSlots(NODES)
    slots.held_by_this_thread(slots.claim((0,)))
    taken = []
    thread = threading.Thread(target=lambda: taken.append(slots.claim(range(4), all_of=True)))
    thread.start()
    until(lambda: slots._queue)
    behind = threading.Thread(target=lambda: taken.append(slots.claim(range(4))))
    behind.start()
    until(lambda: len(slots._queue) == 2)
    assert slots.claim(range(4)) == (2,) and slots.try_claim(range(4)) == (1,)
    assert not taken
    slots.release((2, 1, 0))
    thread.join(60)
    assert taken == [(0, 1, 2, 3)]
    slots.release(taken[0])
    behind.join(60)
    assert taken[1:] == [(0,)]


def test_who_would_wait_for_itself_is_told():
    slots = RankSlots(NODES)
    slots.claim((0,))
    slots.claim((1,))
    slots.held_by_this_thread((0, 1))
    with pytest.raises(SlotDeadlock) as stuck:
        slots.claim((0, 1))
    assert stuck.value.ranks == {0, 1}
    with pytest.raises(SlotDeadlock):
        slots.claim((0, 2), all_of=True)
    assert slots.claim((0, 2)) == (2,)
