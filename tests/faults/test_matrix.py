"""Every fault in every moment: it ends as it must, it is told, service comes back, nothing is left."""

from __future__ import annotations

import importlib.util

import pytest
from faults import play
from faults.matrix import (
    EVERY_FAULT,
    EVERY_MOMENT,
    LEFT_OUT,
    SAMPLE,
    SIZES,
    Case,
    all_cases,
    in_order,
    in_sample,
    sizes,
    why_left_out,
)

pytestmark = pytest.mark.timeout(60)


def extensive_unless_sampled(case: Case):
    return pytest.param(case, marks=() if in_sample(case) else pytest.mark.extensive)


@pytest.mark.parametrize("case", [*map(extensive_unless_sampled, in_order(all_cases()))], ids=str)
def test_it_ends_as_stated(case: Case, stand, tmp_path, results):
    if case.framework and not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is not installed, and without it there is no collective")
    try:
        # What is made once for each kind of pool is made before it is counted.
        alone = case.moment in play.ALONE
        stand.close() if alone else stand.take(case)
        census = stand.census()
        result = play.play(case, stand, tmp_path)
        results.append((case, result))
        play.check(case, result)
        if not alone:
            play.restored(case, stand, result)
        assert not (left := stand.left(census)), left
    except BaseException:
        stand.clear()
        raise


def test_every_pair_is_either_played_or_left_out_for_a_reason():
    played = {(case.fault, case.moment) for case in all_cases()}
    for fault in EVERY_FAULT:
        for moment in EVERY_MOMENT:
            assert ((fault, moment) in played) != bool(why_left_out(fault, moment))
            assert sizes(moment, fault)
    assert all(why for _, _, why in LEFT_OUT)
    assert len(all_cases()) >= 300
    assert len(set(map(str, all_cases()))) == len(all_cases())


def test_the_sample_has_each_fault_each_moment_and_each_size_once_at_least():
    chosen = [case for case in all_cases() if in_sample(case)]
    assert len(chosen) == len(SAMPLE)
    assert {case.fault for case in chosen} == set(EVERY_FAULT)
    assert {case.moment for case in chosen} == set(EVERY_MOMENT)
    assert {case.size for case in chosen} == set(SIZES)
