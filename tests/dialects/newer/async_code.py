"""Under an event loop: `async with`, and what is awaited."""

import asyncio
import tempfile
import time
from pathlib import Path

import skyward_nb as sky


@sky.function
def slowly(value, seconds=0.2):
    time.sleep(seconds)
    return value


@sky.function
def late(told):
    """Ends as the file is there, or after a minute."""
    end = time.monotonic() + 60
    while not told.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return "late"


@sky.function
async def natively(value):
    await asyncio.sleep(0.01)
    return value


async def main(folder):
    ticks = 0

    async def clock():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    ticking = asyncio.create_task(clock())
    async with sky.Compute(nodes=2) as pool:
        print(f"every: {await (slowly('a') @ pool)}")
        print(f"one: {await (slowly('b') >> pool)}")
        print(f"both: {await ((slowly('c') & natively('d')) >> pool)}")
        print(f"gathered: {await asyncio.gather(slowly('e') >> pool, slowly('f') >> pool)}")
        async for value in sky.gather(late(folder / "soon"), slowly("soon"), stream=True) >> pool:
            print(f"ended: {value}")
            (folder / value).touch()
        endless = asyncio.create_task(slowly("never", 3600) @ pool)
        await asyncio.sleep(0.3)
        endless.cancel()
        try:
            await endless
        except asyncio.CancelledError:
            print(f"cancelled, and the ranks are free: {await (slowly('g') @ pool)}")
    ticking.cancel()
    print(f"the loop went on: {ticks > 20}")


with tempfile.TemporaryDirectory() as name:
    asyncio.run(main(Path(name)))
