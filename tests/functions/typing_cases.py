"""What a type checker says of the Python API: read by it alone, run by nobody.

`assert_type` says what a thing is; an ignored error is one that has to be there.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnusedExpression=false

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from concurrent.futures import Future
from typing import Any, assert_type

import skyward_nb as sky


@sky.function
def text(number: int, *, times: int = 1) -> str:
    return str(number) * times


@sky.compute
@sky.integrations.torch(backend="gloo")
@sky.stdout(only="head")
@sky.stderr(only=lambda info: info.rank % 2 == 0)
@sky.silent
def half(number: float) -> float:
    return number / 2


@sky.function
async def later(number: int) -> bytes:
    return bytes(number)


@sky.function
def count(to: int) -> Iterator[int]:
    yield from range(to)


@sky.function
def mean() -> Generator[float, int, str]:
    value = yield 0.0
    yield value / 2
    return "done"


@sky.function
async def ticks(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


def plain(number: int) -> list[int]:
    return [number]


class Model:
    @sky.function
    def predict(self, x: float) -> list[float]:
        return [x]

    @staticmethod
    @sky.function
    def load(path: str) -> bytes:
        return path.encode()


def calls() -> None:
    assert_type(text(3), sky.PendingFunction[str])
    assert_type(text(3, times=2).with_timeout(5), sky.PendingFunction[str])
    assert_type(text(3).local(), str)
    assert_type(text.local(3), str)
    assert_type(half(3), sky.PendingFunction[float])
    assert_type(later(3), sky.PendingFunction[bytes])
    text("3")  # pyright: ignore[reportArgumentType]
    text()  # pyright: ignore[reportCallIssue]
    text(3, time=2)  # pyright: ignore[reportCallIssue]


def operators(pool: sky.Compute) -> None:
    assert_type(text(3) >> pool, str)
    assert_type(text(3) @ pool, list[str])
    assert_type(text(3) > pool, Future[str])
    assert_type((text(3) & half(1)) >> pool, tuple[str, float])
    assert_type((text(3) & half(1) & later(2)) >> pool, tuple[str, float, bytes])
    assert_type((text(3) & half(1)) > pool, Future[tuple[str, float]])
    assert_type((text(3) & half(1)).local(), tuple[str, float])
    assert_type(sky.gather(text(1), text(2)) >> pool, tuple[str, ...])
    assert_type(sky.gather(*[text(n) for n in range(9)]) >> pool, tuple[str, ...])
    assert_type(sky.gather(text(1), text(2), stream=True) >> pool, Iterator[str])
    assert_type(later(1) >> pool, bytes)
    assert_type(later(1) @ pool, list[bytes])
    text >> pool  # pyright: ignore[reportOperatorIssue]
    text(3) >> 3  # pyright: ignore[reportOperatorIssue]
    text(3) & 3  # pyright: ignore[reportOperatorIssue]


def alternatives() -> None:
    assert_type(text(3) @ sky.get_pool(), list[str])
    assert_type(text(3) >> sky.get_pool("default").head, str)
    assert_type(sky.get_pool().map(plain, [1, 2]), list[list[int]])
    spec = sky.Spec(provider=sky.AWS(), accelerator=sky.accelerators.L4(count=0.5), nodes=2)
    data = sky.Volume(bucket="data", mount="/data")
    sky.Compute(spec, sky.Spec(allocation="spot"), selection="first", volumes=[data])
    sky.Compute(worker=sky.Worker(concurrency=4), allocation="on-demand", max_hourly_cost=2.5)
    sky.Compute(spec, selection="last")  # pyright: ignore[reportArgumentType]
    sky.Compute(allocation="preemptible")  # pyright: ignore[reportArgumentType]
    sky.Compute(worker=4)  # pyright: ignore[reportArgumentType]
    sky.Worker(concurrency="4")  # pyright: ignore[reportArgumentType]
    sky.get_pool(3)  # pyright: ignore[reportArgumentType]


def targets(pool: sky.ComputePool) -> None:
    assert_type(text(3) >> pool.head, str)
    assert_type(text(3) @ pool.node(1), list[str])
    assert_type(text(3) > pool.rank(2), Future[str])
    assert_type((text(3) & half(1)) >> pool.node(0), tuple[str, float])


def generators(pool: sky.Compute) -> None:
    assert_type(count(3) >> pool, Iterator[int])
    assert_type(count(3) @ pool, list[Iterator[int]])
    assert_type(mean() >> pool, Generator[float, int, str])


def maps(pool: sky.Compute) -> None:
    assert_type(pool.map(text, [1, 2]), list[str])
    assert_type(pool.map(plain, [1, 2], timeout=3), list[list[int]])
    assert_type(pool.map(later, range(3)), list[bytes])
    assert_type(pool.node(1).map(half, [1.0]), list[float])


def methods(pool: sky.Compute) -> None:
    model = Model()
    assert_type(model.predict(1.0) >> pool, list[float])
    assert_type(Model.predict(model, 1.0) >> pool, list[float])
    assert_type(Model.load("here") >> pool, bytes)
    model.predict("1")  # pyright: ignore[reportArgumentType]
    model.predict()  # pyright: ignore[reportCallIssue]


async def awaited() -> None:
    async with sky.Compute(nodes=2) as pool:
        waiting = text(3) >> pool
        coroutine: Coroutine[Any, Any, str] = waiting
        assert_type(await coroutine, str)
        assert_type(await (text(3) @ pool), list[str])
        assert_type(await ((text(3) & half(1)) >> pool), tuple[str, float])
        assert_type(await (sky.gather(text(1), text(2)) >> pool), tuple[str, ...])
        assert_type(await pool.map(text, [1]), list[str])
        assert_type(await (text(3) >> pool.head), str)
        async for number in ticks(3) >> pool:
            assert_type(number, int)
        async for each in sky.gather(text(1), text(2), stream=True) >> pool:
            assert_type(each, str)


def pools() -> None:
    hosts = sky.SSH(hosts=["gpu1", "me@gpu2:22"], user="me", port=22, key="k", trust="first")
    assert_type(sky.Compute(provider=hosts), sky.Compute)
    with sky.Compute(
        provider=sky.Local(),
        nodes=2,
        accelerator=sky.accelerators.A100(count=2, mig="3g.40gb"),
        image=sky.Image(python="3.12", pip=["torch"], apt=["git"], env={"A": "b"}, includes=["m"]),
        plugins=[sky.plugins.torch(backend="gloo"), sky.plugins.keras(backend="jax")],
        options=sky.Options(cluster=False),
        ranks_per_node=2,
        mesh="fsdp:2,tp:2",
        pip=["numpy"],
        env={"C": "d"},
        spot="auto",
        ttl="4h",
        idle=600,
        max_cost=5,
        name="mine",
    ) as pool:
        assert_type(pool, sky.Compute)
    sky.Compute(accelerator="A100:8")
    sky.Compute(accelerator=sky.NVIDIA.A100)
    sky.Compute(accelerator=sky.Accelerator.NVIDIA.A100(mig="3g.40gb"))
    sky.Compute(node=2)  # pyright: ignore[reportCallIssue]
    sky.Compute(nodes="2")  # pyright: ignore[reportArgumentType]


def on_a_rank() -> None:
    info = sky.instance_info()
    assert_type(info.rank, int)
    assert_type(info.is_head, bool)
    assert_type(sky.shard([1, 2, 3]), list[int])
    assert_type(sky.shard([1, 2], range(2), shuffle=True), tuple[list[int], range])
    for number in sky.progress(range(3)):
        assert_type(number, int)
