"""One call on one rank, on every rank, and several side by side."""

import tempfile
import time
from pathlib import Path

import skyward_nb as sky


@sky.function
def where(word):
    return f"{word} on {sky.instance_info().node}"


@sky.function
def node(folder):
    """Goes on as four are there, or after a minute."""
    (folder / str(sky.instance_info().node)).touch()
    end = time.monotonic() + 60
    while len(list(folder.iterdir())) < 4 and time.monotonic() < end:
        time.sleep(0.02)
    return sky.instance_info().node


@sky.function
def after(word, before=None):
    """Ends as the file `before` is there, or after a minute."""
    end = time.monotonic() + 60
    while before and not before.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return word


with tempfile.TemporaryDirectory() as name, sky.Compute(nodes=4) as pool:
    folder = Path(name)
    print(f"one: {where('a') >> pool.head}")
    print(f"every: {where('b') @ pool}")
    a, b, c = (where("a") & where("b") & where("c")) >> pool
    print(f"side by side: {a[0]}{b[0]}{c[0]}")
    together = folder / "together"
    together.mkdir()
    nodes = sky.gather(*[node(together) for _ in range(4)]) >> pool
    print(f"spread over nodes: {sorted(nodes)}")
    slow_first = [after("slow", folder / "mid"), after("mid", folder / "quick"), after("quick")]
    for word in sky.gather(*slow_first, stream=True) >> pool:
        print(f"ended: {word}")
        (folder / word).touch()
    print(f"a node: {where('n') >> pool.node(2)}")
    print(f"here: {where('h').local()}")
