"""One call on one rank, on every rank, and several side by side."""

import time

import skyward_nb as sky


@sky.function
def where(word, seconds=0.0):
    time.sleep(seconds)
    return f"{word} on {sky.instance_info().node}"


@sky.function
def node():
    time.sleep(1)
    return sky.instance_info().node


with sky.Compute(nodes=4) as pool:
    print(f"one: {where('a') >> pool.head}")
    print(f"every: {where('b') @ pool}")
    a, b, c = (where("a") & where("b") & where("c")) >> pool
    print(f"side by side: {a[0]}{b[0]}{c[0]}")
    nodes = sky.gather(*[node() for _ in range(4)]) >> pool
    print(f"spread over nodes: {sorted(nodes)}")
    slow_first = [
        where(word, seconds) for word, seconds in (("slow", 3), ("mid", 1.5), ("quick", 0))
    ]
    for value in sky.gather(*slow_first, stream=True) >> pool:
        print(f"ended: {value.split()[0]}")
    print(f"a node: {where('n') >> pool.node(2)}")
    print(f"here: {where('h').local()}")
