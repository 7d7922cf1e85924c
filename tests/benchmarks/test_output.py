"""What it costs to show what ranks print, beside ipyparallel: `make bench`."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import psutil
import pytest
from contenders import OURS, RANKS
from jupyter_client.manager import KernelManager
from kernels import Kernel, Ran

LINES = 100_000
FLOOD = "4 ranks × 100,000 printed lines"
MIME = "application/vnd.skyward.run+json"


@contextmanager
def kernel(setup: str) -> Generator[Kernel]:
    """A kernel that has run `setup`."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    running = Kernel(manager)
    try:
        ran = running.run(setup, timeout=120)
        assert ran.status == "ok", ran.error
        yield running
    finally:
        running.client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()


IPYPARALLEL = f"""
import ipyparallel
cluster = ipyparallel.Cluster(n={RANKS}, log_level=50)
view = cluster.start_and_connect_sync(activate=True)[:]
view.block = True
"""
SETUP = {OURS: f"%load_ext skyward_nb\n%sky up nodes={RANKS}", "ipyparallel": IPYPARALLEL}
MAGIC = {OURS: "%%sky_remote", "ipyparallel": "%%px"}
END = {OURS: "%sky down", "ipyparallel": "view.client.close(); cluster.stop_cluster_sync()"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [OURS, "ipyparallel"] * 3)
@pytest.mark.benchmark(group=FLOOD)
def test_flood(benchmark, who):
    with kernel(SETUP[who]) as running:
        code = f"{MAGIC[who]}\nfor i in range({LINES}): print(i)"
        running.run(f"{MAGIC[who]}\nfor i in range(1000): print(i)")
        benchmark.pedantic(running.run, args=(code, 120), rounds=3)
        running.run(END[who])


def kept(ran: Ran) -> int:
    """Bytes of the bundle that the notebook keeps."""
    import json

    return len(json.dumps(ran.displays[-1]))


def accounted(ran: Ran) -> int:
    """Lines of ranks that the last picture shows or counts."""
    total = 0
    for part in ran.displays[-1][MIME]["output"]:
        if part["type"] == "text":
            total += (len(part["lines"]) + part.get("in_html", 0)) * len(part["ranks"])
        elif part["type"] == "cut":
            total += part["lines"]
    return total


@pytest.mark.parametrize("who", [OURS])
def test_what_a_flood_costs(who, figure):
    with kernel(SETUP[who]) as running:
        process = psutil.Process(running.manager.provisioner.process.pid)
        running.run(f"{MAGIC[who]}\nfor i in range(1000): print(i)")
        before = process.memory_info().rss
        ran = running.run(f"{MAGIC[who]}\nfor i in range({LINES}): print(i)")
        ratio = ran.bytes / kept(ran)
        figure(
            f"{FLOOD}: messages to the front end",
            f"{ran.bytes / 1e6:.2f} MB, {ratio:.2f} × the {kept(ran) / 1e6:.2f} MB kept",
            "1.1 × the bytes kept",
            ratio <= 1.1,
        )
        assert accounted(ran) == RANKS * LINES
        ran = running.run(f"{MAGIC[who]}\nfor i in range({10 * LINES}): print(i)", 120)
        assert accounted(ran) == 10 * RANKS * LINES
        growth = (process.memory_info().rss - before) / 1e6
        figure(
            "4 ranks × 1,000,000 printed lines: growth of the kernel",
            f"{growth:.0f} MB",
            "150 MB",
            growth <= 150,
        )
        message = running.begin(f"{MAGIC[who]}\nwhile True: print('x' * 60)")
        time.sleep(1.5)
        began = time.perf_counter()
        running.interrupt()
        running.finish(message)
        took = time.perf_counter() - began
        figure("Interrupt while 4 ranks print", f"{took * 1000:.0f} ms", "500 ms", took <= 0.5)
        code = (
            "%%sky_remote ranks=0\nimport time\nbegan = time.process_time()\n"
            f"for i in range({LINES}): print(i)\n"
            f"(time.process_time() - began) / {LINES} * 1e6"
        )
        cost = min(float(running.run(code).result.strip("[]").split()[-1]) for _ in range(5))
        figure("a rank's print of a line", f"{cost:.2f} µs", "5 µs", cost <= 5)
        running.run("%sky down")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [OURS])
def test_many_ranks(who, figure):
    """64 ranks, each a thousand lines a second for five seconds, half of them its own."""
    code = """%%sky_remote
import os, time
rank, began = os.environ["RANK"], time.monotonic()
for turn in range(500):
    for i in range(5):
        print("line", turn, i)
        print("line", turn, i, "of rank", rank)
    time.sleep(max(0, began + turn * 0.01 - time.monotonic()))
"""
    times: list[float] = []
    with kernel("%load_ext skyward_nb\n%sky up nodes=64") as running:
        running.run("%%sky_remote\nprint()")
        message = running.begin(code)
        began = time.perf_counter()
        ran = running.finish(
            message,
            120,
            on_update=lambda text: times.append(time.perf_counter()) if "●" in text else None,
        )
        took = time.perf_counter() - began
        running.run("%sky down")
    most = max(sum(at <= each < at + 1 for each in times) for at in times)
    lines = accounted(ran)
    figure(
        "64 ranks × 1,000 lines/s for 5 s",
        f"{lines:,} of 320,000 lines accounted for in {took:.1f} s, at most {most} pictures in a second",
        "every line, 10 pictures a second",
        lines == 320_000 and most <= 10,
    )
