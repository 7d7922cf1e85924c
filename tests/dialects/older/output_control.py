"""Output control in the older dialect: below `@sky.compute`, with or without arguments."""

import sys

import skyward_nb as sky


@sky.compute
@sky.stdout(only="head")
@sky.stderr(only=lambda info: info.node == 1)
def chatty():
    print("one line of stdout")
    print("one line of stderr", file=sys.stderr)


@sky.compute
@sky.silent
def quiet():
    print("not to be seen")
    raise ValueError("errors arrive anyway")


with sky.ComputePool(nodes=3) as pool:
    chatty() @ pool
    try:
        quiet() @ pool
    except ValueError as error:
        print(f"raised: {error}")
