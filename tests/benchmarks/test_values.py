"""What names and values cost, beside the peers: `make bench`."""

from __future__ import annotations

import multiprocessing
import pickle
import random
from pathlib import Path

import cloudpickle
import msgspec
import numpy as np
import psutil
import pytest
from contenders import OURS, RANKS, shell
from values import CONTENDERS, COUNT, MEGABYTES, skyward

import skyward_nb as sky
from skyward_nb.cell.cell_names import cell_names

ARRAY = "256 MB array read by 4 ranks, first time"
CHANGED = "256 MB array read by 4 ranks, changed"
AGAIN = "256 MB array read by 4 ranks, unchanged"
BACK = "4 × 256 MB back"
BY_TURNS = [*[OURS, "ray"] * 5, "dask", "ipyparallel"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", BY_TURNS)
@pytest.mark.benchmark(group=ARRAY)
def test_array(benchmark, who):
    """The first large thing that a new pool gets."""
    array = np.ones(COUNT)
    with CONTENDERS[who]() as values:
        benchmark.pedantic(values.read, args=(array,), rounds=1)
        assert values.read(array) == [array.sum()] * RANKS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", BY_TURNS)
@pytest.mark.benchmark(group=CHANGED)
def test_array_changed(benchmark, who):
    """One that changes between reads, in a pool that has been at work for a while."""
    array = np.ones(COUNT)
    with CONTENDERS[who]() as values:

        def setup():
            array[0] += 1
            return (array,), {}

        benchmark.pedantic(values.read, setup=setup, rounds=4, warmup_rounds=2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", [OURS, "ray"])
@pytest.mark.benchmark(group=AGAIN)
def test_array_again(benchmark, who):
    array = np.ones(COUNT)
    with CONTENDERS[who]() as values:
        benchmark.pedantic(values.read, args=(array,), rounds=10, warmup_rounds=2)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", BY_TURNS)
@pytest.mark.benchmark(group=BACK)
def test_back(benchmark, who):
    with CONTENDERS[who]() as values:
        # The first rounds take fresh memory from the system, which is slow, and not ours.
        benchmark.pedantic(values.back, rounds=4, warmup_rounds=2)
        assert [array.nbytes for array in values.back()] == [MEGABYTES * 2**20] * RANKS


def ranks_pss() -> int:
    """Summed proportional set size, in bytes, of the processes this one started."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_full_info().pss for child in children)


@pytest.mark.parametrize("who", [OURS])
def test_memory(who, figure):
    """1 GB read by 4 ranks: what they take together."""
    with CONTENDERS[who]() as values:
        before = ranks_pss()
        array = np.ones(125_000_000)
        values.read(array)
        growth = (ranks_pss() - before) / 1e9
    figure(
        "1 GB read by 4 ranks: growth of summed PSS", f"{growth:.2f} GB", "1.1 GB", growth <= 1.1
    )


@pytest.mark.parametrize("who", [OURS, "with 3 names"] * 8)
@pytest.mark.benchmark(group="10,000 names in the notebook, the cell reads 3")
def test_many_names(benchmark, who):
    ip = shell()
    with skyward():
        names = {f"name_{number}": number for number in range(10_000 if who == OURS else 3)}
        ip.user_ns.update(names)

        def step():
            ip.run_cell_magic("sky_remote", f"nodes={RANKS} quiet", "name_0 + name_1 + name_2")

        benchmark.pedantic(step, rounds=100, warmup_rounds=20)
        for name in names:
            del ip.user_ns[name]


def small_objects() -> dict[str, object]:
    """About 100 MB in memory: 170,000 records of five small objects and more."""
    source = random.Random(0)
    return {
        f"key {n}": {"id": n, "name": f"n{n}" * 2, "values": [source.random() for _ in range(5)]}
        for n in range(170_000)
    }


def load(path: str) -> int:
    return len(pickle.loads(Path(path).read_bytes()))


@pytest.mark.parametrize("who", [OURS, "one dump + 4 loads"] * 3)
@pytest.mark.benchmark(group="100 MB dict of small objects")
def test_small_objects(benchmark, who, tmp_path):
    data = small_objects()
    if who == OURS:
        ip = shell()
        with skyward():
            ip.user_ns["data"] = data

            def setup():
                data["key 0"]["id"] += 1

            def step():
                ip.run_cell_magic("sky_remote", f"nodes={RANKS} quiet", "len(data);")

            benchmark.pedantic(step, setup=setup, rounds=3, warmup_rounds=1)
        return
    with multiprocessing.get_context("spawn").Pool(RANKS) as pool:
        path = Path("/dev/shm") / tmp_path.name

        def bare():
            path.write_bytes(cloudpickle.dumps(data))
            pool.map(load, [str(path)] * RANKS, chunksize=1)

        try:
            benchmark.pedantic(bare, rounds=3, warmup_rounds=1)
        finally:
            path.unlink(missing_ok=True)


LINES = """\
def step_{n}(model, batch, *, rate=rate_{m}, **options):
    loss = sum(w * loss_{m}(model(x), y) for (x, y), w in zip(batch, weights))
    with no_grad() as context:
        for name, value in model.items():
            value -= rate * grads.get(name, [g for g in default if g > eps])
    return loss / len(batch) if (count := len(batch)) else None

history_{n} = [step_{n}(models[i], b) for i, b in enumerate(batches_{m}) if b is not None]
frame_{n} = {{key: (lambda v: v + offset)(value) for key, value in table_{m}.items()}}
"""


@pytest.mark.parametrize("who", [OURS])
@pytest.mark.benchmark(group="names of a 400-line cell")
def test_names(benchmark, who):
    source = "\n".join(LINES.format(n=n, m=n + 1) for n in range(41))
    assert source.count("\n") >= 400
    found = benchmark.pedantic(cell_names, args=(source,), rounds=30, warmup_rounds=3)
    assert {"weights", "offset", "eps", "rate_1", "batches_41"} <= found.reads


def part(who: str, x: np.ndarray, index: np.ndarray | None) -> np.ndarray:
    """Rank 1's rows, by us or by NumPy alone; with `index`, where the order costs it nothing."""
    if who == OURS:
        return sky.shard(x, shuffle=index is not None)
    if who == "x[r::world]":
        return x[1::RANKS]
    if who == "x[index], index given":
        return x[index]
    return x[np.random.default_rng(0).permutation(len(x))[1::RANKS]]


@pytest.fixture
def as_rank_1(monkeypatch):
    info = sky.InstanceInfo(rank=1, world_size=RANKS)
    monkeypatch.setenv("COMPUTE_POOL", msgspec.json.encode(info).decode())


@pytest.mark.parametrize("who", [OURS, "x[permutation(n)[r::world]]", "x[index], index given"] * 3)
@pytest.mark.parametrize("columns", [1, 8])
def test_shuffled_shard(benchmark, who, columns, as_rank_1):
    benchmark.group = f"sky.shard of 10 M rows{' of 8' * (columns > 1)}, shuffled"
    x = np.random.default_rng(1).random((10_000_000, columns)).squeeze()
    index = np.random.default_rng(0).permutation(len(x))[1::RANKS].copy()
    found = benchmark.pedantic(part, args=(who, x, index), rounds=5, warmup_rounds=1)
    assert len(found) == len(index)


@pytest.mark.parametrize("who", [OURS, "x[r::world]"] * 5)
@pytest.mark.benchmark(group="sky.shard of 10 M rows, copied")
def test_shard(benchmark, who, as_rank_1):
    """A slice that is only looked at costs neither of them any time; here it is copied once."""
    x = np.random.default_rng(1).random(10_000_000)
    benchmark.pedantic(lambda: part(who, x, None).copy(), rounds=10, warmup_rounds=2)
