"""What a check found, in words: golden texts."""

from msgspec.structs import replace

from skyward_nb.picture.check_report import (
    device_lines,
    link_lines,
    reach_lines,
    reduction_lines,
    version_lines,
)
from skyward_nb.words.findings import (
    LISTENING,
    Connection,
    PathSpeed,
    RankFacts,
    ReachResult,
    ReduceTiming,
    Reductions,
)

A100 = RankFacts(
    rank=0,
    node=0,
    host="a",
    address="10.0.0.1",
    device="A100",
    memory=80_000_000_000,
    cpus=8,
    threads=8,
    port=4000,
    versions={"Python": "3.11.7", "torch": "2.13.0", "driver": "570.1"},
)


def connection(speed):
    return Connection(ranks=(0, 1), nodes=(0, 0), link=PathSpeed(2e-5, speed))


def ranks(count, per_node=2, **changes):
    return [
        replace(
            A100,
            rank=rank,
            node=rank // per_node,
            host="ab"[rank // per_node % 2],
            address=f"10.0.0.{rank // per_node + 1}",
            port=4000 + rank,
            **changes,
        )
        for rank in range(count)
    ]


def text(lines):
    return "\n".join(lines)


def test_devices_that_are_alike():
    assert (
        text(device_lines(ranks(4)))
        == """\
all 4 ranks have the same: A100, 80 GB, 8 CPU threads, on 2 nodes
  rank  node  host  device  memory  CPU threads
  0     0     a     A100    80 GB   8
  1     0     a     A100    80 GB   8
  2     1     b     A100    80 GB   8
  3     1     b     A100    80 GB   8"""
    )


def test_devices_that_differ_are_named_with_their_ranks():
    facts = [*ranks(4, 4), replace(A100, rank=4, node=1, device="L4", memory=24_000_000_000)]
    first, *_ = device_lines(facts)
    assert first == (
        "devices differ: ranks 0-3 have A100, rank 4 has L4; "
        "memory differs: ranks 0-3 have 80 GB, rank 4 has 24 GB"
    )


def test_one_rank_and_its_devices():
    facts = [replace(A100, devices=4, threads=2)]
    first, _, row = device_lines(facts)
    assert first == "1 rank has 4 × A100, 80 GB, 2 of 8 CPU threads"
    assert row.endswith("  2 of 8")


def test_many_ranks_share_a_row_on_a_node():
    rows = list(device_lines(ranks(24, 8)))[2:]
    assert [row.split()[0] for row in rows] == ["0-7", "8-15", "16-23"]


def test_versions_alike():
    assert text(version_lines(ranks(2))) == (
        "versions: the same on all ranks: Python 3.11.7, torch 2.13.0, driver 570.1"
    )


def test_versions_that_differ_and_frameworks_that_lack():
    facts = ranks(4)
    facts[1] = replace(facts[1], versions={**A100.versions, "torch": "2.12.1"})
    facts[2] = replace(
        facts[2],
        versions={"Python": "3.11.7"},
        troubles={"torch": "ImportError: libcudart.so.12", LISTENING: "cannot listen on 10.0.0.2"},
    )
    assert (
        text(version_lines(facts))
        == """\
rank 2: torch cannot be imported: ImportError: libcudart.so.12
rank 2: cannot listen on 10.0.0.2
versions differ
  torch: ranks 0,3 have 2.13.0, rank 1 has 2.12.1
  driver: ranks 0-1,3 have 570.1, rank 2 has none
versions: Python 3.11.7"""
    )


def test_ranks_that_all_reach_one_another():
    ways = {
        rank: [ReachResult(to, 2e-5 * (to + 1)) for to in range(3) if to != rank]
        for rank in range(3)
    }
    assert text(reach_lines(ranks(3), ways)) == (
        "all 3 pairs of ranks reach each other (TCP, round trip 20 µs to 60 µs)"
    )
    assert text(reach_lines(ranks(1), {})) == "there is no second rank to reach"


def test_a_pair_that_does_not_is_named_with_both_addresses():
    facts = ranks(3)
    ways = {
        0: [ReachResult(1, 1e-5), ReachResult(2, trouble="no answer in 3 s")],
        1: [ReachResult(0, 1e-5), ReachResult(2, 1e-5)],
        2: [ReachResult(0, 1e-5), ReachResult(1, 1e-5)],
    }
    assert (
        text(reach_lines(facts, ways))
        == """\
1 of 6 ways between ranks fails
  from \\ to  0   1   2
  0          ·   ok  fails
  1          ok  ·   ok
  2          ok  ok  ·
rank 0 (10.0.0.1) does not reach rank 2 (10.0.0.2 port 4002): no answer in 3 s"""
    )


def test_of_many_that_fail_the_first_are_told():
    facts = ranks(40)
    ways = {
        rank: [ReachResult(to, trouble="refused") for to in range(40) if to != rank]
        for rank in range(40)
    }
    lines = list(reach_lines(facts, ways))
    assert len(lines) == 22 and lines[-1] == "and 1540 more"


def test_bandwidth_is_counted_as_by_nccl_tests():
    timing = ReduceTiming(1_000_000, 4, 0.001)
    assert timing.algorithm_speed == 1e9
    assert timing.bus_speed == 1.5e9


def test_all_reduce_beside_the_link():
    timings = [ReduceTiming(1_000, 4, 0.0001), ReduceTiming(1_000_000, 4, 0.001)]
    assert (
        text(
            reduction_lines(
                ranks(4),
                Reductions(
                    through="torch", sizes=(1_000, 1_000_000, 64_000_000), timings=tuple(timings)
                ),
            )
        )
        == """\
all-reduce of 4 ranks through torch; algorithm and bus bandwidth as nccl-tests counts them
  size  time    algorithm  bus
  1 kB  100 µs  10 MB/s    15 MB/s
  1 MB  1 ms    1 GB/s     1.5 GB/s
  64 MB and more would have taken too long"""
    )
    assert (
        text(link_lines(connection(3e9), timings))
        == """\
one TCP connection between ranks 0 and 1: 3 GB/s, round trip 20 µs
all-reduce at its best (1 MB) has 50 % of that; one of 1 kB takes 5.0 round trips"""
    )
    assert "has 15.0 times the speed of that" in text(link_lines(connection(1e8), timings))
