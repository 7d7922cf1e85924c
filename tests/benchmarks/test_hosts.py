"""What hosts that one logs in to cost, beside OpenSSH's own client: `make bench`, as root."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
import ssh_streams
from calls import own
from cluster.box import why_no_boxes
from cluster.town import Town
from contenders import OURS

import skyward_nb as sky
from skyward_nb.store.blobs import digest_of

pytestmark = pytest.mark.skipif(bool(why_no_boxes()), reason=why_no_boxes())

UP = "1 GB to a host"
DOWN = "1 GB from a host"
GIGABYTE = 1 << 30
PART = 256 << 20
CIPHER = "aes128-gcm@openssh.com"
DELAY = 0.03
RATE = 20e6


@contextmanager
def town_of(count: int, folder: Path) -> Iterator[Town]:
    """Hosts that are gone afterwards."""
    town = Town(count, folder / "town", disk="8g")
    try:
        yield town
    finally:
        town.close()


def pool_on(town: Town, count: int | None = None) -> sky.Compute:
    """A pool on hosts of a town, with this Python."""
    hosts = town.names[: count or len(town)]
    return sky.Compute(
        provider=sky.SSH(hosts=hosts, config=str(town.config)),
        image=sky.Image(interpreter=sys.executable),
        quiet=True,
    )


@own
def length(data: bytes) -> int:
    return len(data)


size = sky.function(length)


def seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def openssh(town: Town, command: str, data: bytes = b"") -> None:
    """One channel of OpenSSH's client."""
    words = ["ssh", "-F", str(town.config), "-c", CIPHER, town.names[0], command]
    subprocess.run(words, input=data, stdout=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize("who", [OURS, "openssh"] * 3)
@pytest.mark.benchmark(group=UP)
def test_up(benchmark, tmp_path, who):
    data = os.urandom(GIGABYTE)
    with town_of(1, tmp_path) as town:
        if who != OURS:
            benchmark.pedantic(openssh, args=(town, "cat > /dev/null", data), rounds=2)
            return
        with pool_on(town) as pool:
            size(b"") @ pool
            store = pool._runner.pool.store
            digest = digest_of([data])
            benchmark.pedantic(
                lambda: store.put(digest, [data]),
                setup=lambda: store.drop([digest]),
                rounds=2,
            )


@pytest.mark.parametrize("who", [OURS, "openssh"] * 3)
@pytest.mark.benchmark(group=DOWN)
def test_down(benchmark, tmp_path, who):
    with town_of(1, tmp_path) as town:
        if who != OURS:
            command = f"head -c {GIGABYTE} /dev/zero"
            benchmark.pedantic(openssh, args=(town, command), rounds=2)
            return
        with pool_on(town) as pool:
            size(b"") @ pool
            store = pool._runner.pool.store
            data = os.urandom(GIGABYTE)
            digest = digest_of([data])

            def setup() -> None:
                store.drop([digest])
                store.put(digest, [data])

            benchmark.pedantic(lambda: store.map(digest), setup=setup, rounds=2)


def test_delay(tmp_path, figure):
    data, later = os.urandom(PART), os.urandom(PART)
    with town_of(1, tmp_path) as town:
        # From the beginning: congestion control remembers how near a host was.
        town.line.netem(delay=DELAY)
        with pool_on(town) as pool:
            size(b"") @ pool
            store = pool._runner.pool.store
            first = PART / seconds(lambda: store.put(digest_of([data]), [data]))
            ours = PART / seconds(lambda: store.put(digest_of([later]), [later]))
        login = seconds(lambda: openssh(town, "true"))
        plain = PART / (seconds(lambda: openssh(town, "cat > /dev/null", data)) - login)
        town.line.netem()
    figure(
        f"256 MB to a host {2000 * DELAY:g} ms away (there and back), beside one channel of OpenSSH",
        f"{ours / 1e6:.0f} MB/s (the first value: {first / 1e6:.0f}), {plain / 1e6:.0f} MB/s: "
        f"{ours / plain:.1f} × ({first / plain:.1f} ×)",
        "1/5 of the time",
        ours >= 5 * plain,
    )


@pytest.mark.parametrize("delay", [0.0, DELAY], ids=["near", "far"])
def test_streams(tmp_path, figure, delay):
    data = os.urandom(PART)
    with town_of(1, tmp_path) as town:
        if delay:
            town.line.netem(delay=delay)
        found = ssh_streams.compared(town, data)
        town.line.plain()
    for up in (True, False):
        wall = found[ssh_streams.OPENSSH, up].wall
        told = [
            f"{who} {wall / cost.wall:.2f} × ({PART / cost.wall / 1e6:.0f} MB/s, {cost.cpu * 1e9 / PART:.1f} s of CPU per GB)"
            for (who, way), cost in found.items()
            if way is up
        ]
        best = min(found[who, up].wall for who in (ssh_streams.ORDINARY, ssh_streams.PROCESS))
        figure(
            f"256 MB {'to' if up else 'from'} a host {2000 * delay:g} ms away in one stream, beside OpenSSH",
            ", ".join(told),
            "0.8 × OpenSSH by asyncssh's own streams: then packets need not be sealed here",
            wall >= 0.8 * best,
        )


def test_fan(tmp_path, figure):
    data = os.urandom(PART)

    def carried(count: int) -> tuple[float, int]:
        with pool_on(town, count) as pool:
            size(b"") @ pool
            before, _ = town.line.moved()
            took = seconds(lambda: size(data) @ pool)
            return took, town.line.moved()[0] - before

    with town_of(8, tmp_path) as town:
        town.line.netem(rate=RATE)
        one, _ = carried(1)
        eight, moved = carried(8)
        town.line.netem()
    figure(
        "256 MB to 8 hosts over a line of 20 MB/s, beside one host",
        f"{eight:.1f} s, {one:.1f} s: {eight / one:.2f} ×; {moved / PART:.3f} × its bytes over the line",
        "1.3 × the time, 1.05 × the bytes",
        eight <= 1.3 * one and moved <= 1.05 * PART,
    )


def test_warm(tmp_path, figure):
    with town_of(4, tmp_path) as town, pool_on(town) as pool:
        size(b"") @ pool
        trips = [seconds(lambda: size(b"x") @ pool) for _ in range(300)]
    figure(
        "a warm call on 4 hosts, on a network of this machine",
        f"{1000 * median(trips):.2f} ms",
        "round trip + 3 ms",
        median(trips) <= 0.003,
    )


def test_second_start(tmp_path, figure):
    with town_of(8, tmp_path) as town:
        for _ in range(2):
            pool = pool_on(town)
            took = seconds(pool.start)
            pool.close()
    figure(
        "a pool on 8 hosts whose image has not changed, from nothing to ready",
        f"{took:.1f} s",
        "3 s",
        took <= 3,
    )
