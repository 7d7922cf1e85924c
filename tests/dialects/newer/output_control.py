"""Who is heard: decorators above or below `@sky.function` say which ranks' output is shown."""

import sys

import skyward_nb as sky


def talk(word):
    info = sky.instance_info()
    print(f"{word} out {info.rank}")
    print(f"{word} err {info.rank}", file=sys.stderr)
    return info.rank


@sky.function
def everyone():
    return talk("everyone")


@sky.function
@sky.stdout(only="head")
def head():
    return talk("head")


@sky.function
@sky.stdout(only=lambda info: info.rank % 2 == 1)
@sky.stderr(only=[0, 2])
def some():
    return talk("some")


@sky.silent
@sky.function
def nobody():
    return talk("nobody")


with sky.Compute(nodes=4) as pool:
    for function in (everyone, head, some, nobody):
        print(f"{function.name}: values {function() @ pool}")
