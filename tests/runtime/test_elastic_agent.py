"""What is told of workers that failed: which of them, and in which order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from skyward_nb.runtime.elastic_agent import _told


def failed(rank, code, at):
    return SimpleNamespace(
        local_rank=rank, exitcode=code, error_file="<N/A>", timestamp=at, message=""
    )


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        # The agent has stopped the others.
        ([(0, 1, 100), (1, -15, 100), (2, -9, 130)], [0]),
        # It was killed first, for its memory; who waited for it failed then.
        ([(0, 1, 101), (1, -9, 100), (2, -15, 102)], [1, 0]),
        ([(0, -9, 100), (1, -15, 101)], [0, 1]),
    ],
    ids=["stopped", "killed first", "only killed"],
)
def test_whom_the_agent_has_stopped_is_left_out_and_no_other(failures, told):
    found = _told({rank: failed(rank, code, at) for rank, code, at in failures})
    assert [each.rank for each in found] == told
