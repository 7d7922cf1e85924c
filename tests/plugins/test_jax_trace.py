"""What of a trace of JAX is communication."""

from __future__ import annotations

import json

from skyward_nb.plugins.jax_trace import communication, places
from skyward_nb.plugins.torch_trace import length, read, steady_share


def operation(name, start, end, operation=None, **rest):
    args = {"hlo_op": name if operation is None else operation, "hlo_module": "jit_step"}
    return {
        "ph": "X",
        "name": name,
        "ts": start,
        "dur": end - start,
        "pid": 7,
        "args": args,
        **rest,
    }


def events(*found):
    return read(json.dumps({"traceEvents": [*found, {}]}).encode()).traceEvents


def test_collectives_of_cpus_with_what_runs_beside_them():
    spans, exposed, kinds = communication(
        events(
            operation("while.3", 0, 9e6),
            operation("all-reduce.2", 0, 2e6),
            operation("end: all-reduce.2", 2e6, 3e6, ""),
            operation("all-reduce", 1e6, 3e6),
            operation("all-gather.1", 5e6, 6e6),
            operation("dot.4", 1e6, 2e6),
            operation("all-reduce-promotion", 7e6, 8e6, ""),
        )
    )
    assert (length(spans), exposed) == (4.0, 3.0)
    assert [(each.name, each.count, each.seconds) for each in kinds] == [
        ("all_reduce", 2, 3.0),
        ("all_gather", 1, 1.0),
    ]


def test_one_that_starts_and_is_done_counts_once():
    *_, kinds = communication(
        events(
            operation("collective-permute-start.1", 0, 1e6),
            operation("collective-permute-done.1", 2e6, 3e6),
        )
    )
    assert [(each.name, each.count, each.seconds) for each in kinds] == [
        ("collective_permute", 1, 2.0)
    ]


def test_on_gpus_it_is_what_the_kernels_take():
    spans, exposed, kinds = communication(
        events(
            operation("all-reduce-start.1", 0, 9e6),
            operation("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 1e6, 3e6, "all-reduce-start.1"),
            operation("gemm_fusion", 2e6, 4e6, "fusion.3"),
        )
    )
    assert (length(spans), exposed) == (2.0, 1.0)
    assert [(each.name, each.count) for each in kinds] == [("all_reduce", 1)]


def test_the_steady_share_of_a_rank_that_is_waited_for_is_the_smaller_one():
    """A collective lasts from a rank's call until the last rank has called it."""

    def share(waits):
        steps = [operation("all-reduce.1", n * 1e6, (n + waits) * 1e6) for n in range(20)]
        spans, _, _ = communication(events(*steps))
        return steady_share(spans, 20.0)

    assert share(0.9) > 0.85
    assert share(0.1) < 0.15


def test_what_its_processes_are():
    def about(pid, name):
        return {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}

    found = places(events(about(701, "/host:CPU"), about(1, "/device:GPU:0 NVIDIA")))
    assert found == {701: "", 1: "GPU:0"}
