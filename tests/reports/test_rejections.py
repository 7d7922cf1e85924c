"""What ranks could not rebuild, as one error."""

from __future__ import annotations

import pytest

from skyward_nb.names.plan import Plan
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.protocol.events import RankDone, Rejected
from skyward_nb.reports.rejections import rejection_of


def outcome(done):
    return RunOutcome((0, 1, 2, 3), Plan(), done, {}, [], frozenset(), interrupted=False)


@pytest.mark.parametrize(
    ("rejected", "advice"),
    [
        (Rejected((), "ImportError", missing="sky_t.part"), "lack the module sky_t.part: add it"),
        (Rejected((), "it is gone", gone=True), "did not run; the next run sends it whole"),
        (Rejected((), "ValueError: no"), "look at its class's __reduce__"),
    ],
)
def test_all_ranks_that_rejected_the_same_are_in_one_error(rejected, advice):
    others = {0: RankDone(run=1, rank=0), 1: RankDone(run=1, rank=1, rejected=Rejected((), ""))}
    done = others | {rank: RankDone(run=1, rank=rank, rejected=rejected) for rank in (3, 2)}
    error = rejection_of(outcome(done))
    assert "the call's arguments" in error.message
    assert f"cannot be rebuilt on ranks 2-3: {rejected.reason}" in error.message
    assert advice in error.message
    assert rejection_of(outcome(others)) is None
