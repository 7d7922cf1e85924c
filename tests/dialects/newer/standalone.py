"""Nodes that stand alone: `sky.Options(cluster=False)` makes each a world of its own, without a head."""

import skyward_nb as sky


@sky.function
def world():
    info = sky.instance_info()
    return (info.node, info.total_nodes), (info.rank, info.world_size), info.is_head


@sky.function
def part(items):
    return sky.shard(items)


alone = sky.Options(cluster=False)
with sky.Compute(nodes=3, options=alone) as pool:
    for node, ranks, is_head in world() @ pool:
        print(f"node {node[0]} of {node[1]}: rank {ranks[0]} of {ranks[1]}, head {is_head}")
    print(f"each has all of it: {part([1, 2, 3, 4]) @ pool}")
    print(f"spread by hand: {pool.map(lambda x: x * x, range(6))}")

try:
    sky.Compute(nodes=3, options=alone, plugins=[sky.plugins.torch()])
except sky.OptionError as error:
    print(f"refused: {error}")
