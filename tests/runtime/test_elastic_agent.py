"""What a node's agent of torchrun is told, and what is told of workers that failed: which of them, in which order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from free_ports import free_port

from skyward_nb.runtime.elastic_agent import _told, _words


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


@pytest.mark.parametrize(
    ("options", "conf"),
    [
        ({}, ["is_host=true", "is_host=false"]),
        ({"rdzv-conf": "timeout=9"}, ["timeout=9,is_host=true", "timeout=9,is_host=false"]),
        ({"rdzv-conf": "timeout=9, is_host = 1"}, ["timeout=9, is_host = 1"] * 2),
        ({"rdzv-conf": " "}, ["is_host=true", "is_host=false"]),
        ({"rdzv-endpoint": "login:29400"}, [None] * 2),
        ({"rdzv-backend": "etcd-v2"}, [None] * 2),
        ({"rdzv-backend": "static"}, [None] * 2),
    ],
)
def test_the_store_of_nodes_that_meet_by_c10d_is_the_heads_whoever_comes_first(options, conf):
    peers = [SimpleNamespace(node=node, address="127.0.0.1") for node in (0, 1)]
    found = []
    for node in (0, 1):
        info = SimpleNamespace(
            node=node, peers=peers, head_addr="127.0.0.1", head_port=0, job_id="pool-1"
        )
        words = _words({"rdzv-backend": "c10d", **options}, info, 2, free_port(), "logs")
        said = dict(word.removeprefix("--").split("=", 1) for word in words)
        found.append(said.get("rdzv-conf"))
    assert found == conf
