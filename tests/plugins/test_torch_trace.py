"""What of a trace is communication, and traces of several ranks made ready to be one."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward_nb.plugins.torch_trace import (
    communication,
    for_all,
    length,
    overlap,
    read,
    steady_share,
    union,
)


def event(name, start, end, cat="cpu_op", **rest):
    return {
        "ph": "X",
        "name": name,
        "cat": cat,
        "ts": start,
        "dur": end - start,
        "pid": 7,
        "tid": 1,
        **rest,
    }


def trace(*events, base=0):
    return read(json.dumps({"traceEvents": events, "baseTimeNanoseconds": base}).encode())


def gloo(name, start, end):
    return event(f"gloo:{name}", start, end, "user_annotation", tid=2)


def test_time_in_collectives_counts_once_where_they_overlap():
    spans, exposed, kinds = communication(
        trace(
            gloo("all_reduce", 0, 1e6), gloo("all_reduce", 5e5, 2e6), gloo("broadcast", 1e6, 3e6)
        ).traceEvents
    )
    assert (length(spans), exposed) == (3.0, 3.0)
    assert [(each.name, each.count, each.seconds) for each in kinds] == [
        ("all_reduce", 2, 2.0),
        ("broadcast", 1, 2.0),
    ]


def test_what_operators_overlap_is_not_exposed():
    spans, exposed, _ = communication(
        trace(
            gloo("all_reduce", 0, 10e6),
            event("aten::mm", 1e6, 2e6),
            event("aten::add", 1.5e6, 3e6),
            event("c10d::allreduce_", 0, 9e6),
            event("autograd::engine::evaluate_function: X", 0, 9e6),
            event("DistributedDataParallel.forward", 0, 9e6, "user_annotation"),
            event("MyFunction", 0, 9e6),
        ).traceEvents
    )
    assert (length(spans), exposed) == (10.0, 8.0)


def test_kernels_of_nccl_count_with_their_bytes_and_other_kernels_overlap_them():
    args = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "BFloat16"}
    spans, exposed, kinds = communication(
        trace(
            event("nccl:all_reduce", 0, 50, "user_annotation"),
            event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 1e6, 3e6, "kernel", args=args),
            event("ncclDevKernel_AllGather_RING_LL(x)", 4e6, 5e6, "kernel"),
            event("sm90_gemm", 2e6, 4.5e6, "kernel"),
            event("aten::mm", 0, 9e6),
        ).traceEvents
    )
    assert (length(spans), exposed) == (3.0, 1.5)
    assert [(each.name, each.count, each.values, each.size) for each in kinds] == [
        ("all_reduce", 1, 1000, 2000),
        ("all_gather", 1, 0, 0),
    ]


@pytest.mark.parametrize(
    ("operator", "kind", "dims", "values"),
    [
        ("allreduce_", "all_reduce", [[[3, 4], [5]], [], []], 17),
        ("_allgather_base_", "_all_gather_base", [[8], [4], []], 0),
        ("reduce_scatter_", "reduce_scatter", [[], [[6]], []], 6),
        ("barrier", "barrier", [[1], [], []], 0),
        ("broadcast_", "broadcast", [[[]], []], 1),
    ],
)
def test_numbers_of_an_operator_are_those_of_its_collective(operator, kind, dims, values):
    operand = event(f"c10d::{operator}", 0, 1, args={"Input Dims": dims})
    _, _, (found,) = communication(trace(operand, gloo(kind, 0, 1)).traceEvents)
    assert (found.count, found.values) == (1, values)


def test_a_run_without_any():
    assert communication(trace(event("aten::mm", 0, 1)).traceEvents) == ([], 0.0, ())


times = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=8)


@given(times, times)
def test_unions_and_their_overlap_are_what_counting_says(one, other):
    def ticks(intervals):
        return {tick for start, end in intervals for tick in range(start, end)}

    first = [(start, start + length) for start, length in one]
    second = [(start, start + length) for start, length in other]
    assert ticks(union(first)) == ticks(first)
    found = list(overlap(union(first), union(second)))
    assert ticks(found) == ticks(first) & ticks(second)
    assert sum(end - start for start, end in found) == len(ticks(found))


def test_ranks_in_one_trace_keep_apart():
    events = (
        {
            "ph": "M",
            "name": "process_name",
            "pid": 7,
            "tid": 0,
            "ts": 5.0,
            "args": {"name": "python"},
        },
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": {"name": "main"}},
        event("aten::mm", 5.0, 6.0, args={"x": [1]}),
        {"ph": "s", "id": 3, "pid": 7, "tid": 1, "ts": 5.0, "cat": "fwdbwd", "name": "f"},
        {
            "ph": "f",
            "id": 3,
            "pid": 7,
            "tid": 1,
            "ts": 6.0,
            "cat": "fwdbwd",
            "name": "f",
            "bp": "e",
        },
        event("sgemm", 5.0, 6.0, "kernel", pid=0),
    )
    merged = []
    for rank, base in ((0, 2_000_000), (1, 3_000_000)):
        found = for_all(trace(*events, base=base), rank, 2, base=2_000_000)
        merged += json.loads(msgspec.json.encode(found))
    names = {e["pid"]: e["args"]["name"] for e in merged if e["name"] == "process_name"}
    assert sorted(names.values()) == ["rank 0", "rank 0 · GPU 0", "rank 1", "rank 1 · GPU 0"]
    operators = [e for e in merged if e["name"] == "aten::mm"]
    assert [(names[e["pid"]], e["ts"], e["dur"]) for e in operators] == [
        ("rank 0", 5.0, 1.0),
        ("rank 1", 1005.0, 1.0),
    ]
    assert operators[0]["args"] == {"x": [1]}
    flows = [(e["ph"], e["id"]) for e in merged if e.get("cat") == "fwdbwd"]
    assert flows[0][1] == flows[1][1] != flows[2][1] == flows[3][1]
    assert [e["bp"] for e in merged if e["ph"] == "f"] == ["e", "e"]
    threads = [e for e in merged if e["name"] == "thread_name"]
    assert [names[e["pid"]] for e in threads] == ["rank 0", "rank 1"] and "ts" not in threads[0]


def test_what_is_no_trace_is_refused():
    with pytest.raises(ValueError):
        read(b'{"traceEvents": 3}')


def test_the_steady_share_leaves_out_who_was_waited_for_once():
    def waits(*seconds):
        begins = [(sum(seconds[:n]) + n) * 1e6 for n in range(len(seconds))]
        return [(at, at + each * 1e6) for at, each in zip(begins, seconds, strict=True)]

    assert steady_share(waits(*[1.0] * 20), 40.0) == pytest.approx(18 / 38)
    assert steady_share(waits(60.0, *[0.01] * 19), 100.0) < 0.01
    assert steady_share(waits(), 10.0) == steady_share(waits(5.0), 5.0) == 0.0
