"""Parallel and broadcast in the older dialect: `>>`, `@`, `&` and `sky.gather` on a ComputePool."""

import skyward_nb as sky


@sky.compute
def clean(numbers):
    return [number for number in numbers if number >= 0]


@sky.compute
def mean(numbers):
    return sum(numbers) / len(numbers)


@sky.compute
def whoami():
    return sky.instance_info().rank


data = [3, -1, 4, -1, 5]
with sky.ComputePool(nodes=3) as pool:
    cleaned = clean(data) >> pool
    print(f"one: {cleaned}")
    low, high = (mean(cleaned) & mean([10 * each for each in cleaned])) >> pool
    print(f"parallel: {low:g} {high:g}")
    means = sky.gather(*[mean(range(n)) for n in (3, 5, 7)]) >> pool
    print(f"gathered: {means}")
    print(f"broadcast: {whoami() @ pool}")
    print(f"streamed: {sorted(sky.gather(*[mean(range(n)) for n in (3, 5)], stream=True) >> pool)}")

local = mean(data).local()
print(f"here: {local:g}")
