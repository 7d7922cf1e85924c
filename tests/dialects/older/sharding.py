"""Sharding in the older dialect: `sky.shard` of arrays of several kinds, and a sum of parts."""

import numpy as np
import pandas as pd

import skyward_nb as sky


@sky.compute
def part_sums(x, frame, words):
    x, frame, words = sky.shard(x, frame, words)
    return float(x.sum()), frame["value"].tolist(), words, type(frame).__name__


x = np.arange(1000.0)
frame = pd.DataFrame({"value": np.arange(1000)})
words = [str(number) for number in range(1000)]

with sky.ComputePool(nodes=2, ranks_per_node=2) as pool:
    parts = part_sums(x, frame, words) @ pool

print(f"sum of parts: {sum(part[0] for part in parts):g} of {x.sum():g}")
print(f"rank r of n has r::n: {[part[1][:2] for part in parts]}")
print(f"aligned: {all(list(map(str, part[1])) == part[2] for part in parts)}, {parts[0][3]}")
