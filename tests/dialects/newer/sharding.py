"""`sky.shard`: each rank gets its part, of the kind it was, and several stay aligned."""

import numpy as np

import skyward_nb as sky

x = np.arange(10) * 10
names = [f"item {number}" for number in range(10)]


@sky.function
def part(x, names):
    mine, labels = sky.shard(x, names, shuffle=True, seed=7)
    assert [f"item {value // 10}" for value in mine] == labels
    return mine, labels


@sky.function
def sizes(x):
    return len(sky.shard(x)), len(sky.shard(x, drop_last=True)), type(sky.shard(tuple(x))).__name__


with sky.Compute(nodes=4) as pool:
    parts = part(x, names) @ pool
    again = part(x, names) @ pool
    counted = sizes(x) @ pool
    try:
        sky.function(lambda: sky.shard([1, 2, 3], [1, 2]))() @ pool
    except ValueError as error:
        print(f"refused: {error}")

print(f"kinds: {type(parts[0][0]).__name__}, {type(parts[0][1]).__name__}, {counted[0][2]}")
print(f"sizes: {[size for size, *_ in counted]}, with drop_last {[size for _, size, _ in counted]}")
print(f"together: {sorted(int(value) for mine, _ in parts for value in mine)}")
print(
    f"the same again: {all(np.array_equal(a[0], b[0]) for a, b in zip(parts, again, strict=True))}"
)
