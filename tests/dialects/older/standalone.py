"""Standalone nodes in the older dialect: no cluster, so each of them may run its own trial."""

import skyward_nb as sky


@sky.compute
def trial(rate):
    info = sky.instance_info()
    value = 1.0
    for _ in range(20):
        value -= rate * 2 * value
    return f"node {info.node}", info.world_size, abs(value)


with sky.ComputePool(nodes=2, ranks_per_node=2, options=sky.Options(cluster=False)) as pool:
    rates = (0.1, 0.3, 0.01, 0.45)
    trials = sky.gather(*[trial(rate) for rate in rates]) >> pool

best = min(range(4), key=lambda number: trials[number][2])
print(f"worlds of: {sorted({world for _, world, _ in trials})}")
print(f"nodes used: {sorted({node for node, _, _ in trials})}")
print(f"best rate: {rates[best]}")
