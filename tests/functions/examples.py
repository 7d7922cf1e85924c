"""Functions that tests of pools call."""

from __future__ import annotations

import time

import skyward_nb as sky

HEAD = "import os, signal, sys, threading, time\nimport skyward_nb as sky\n"
"""How a script of a test begins."""


@sky.function
def same(value):
    return value


@sky.function
def total(values):
    return sum(values)


@sky.function
def place():
    info = sky.instance_info()
    return info.node, info.rank


@sky.function
def twice(x):
    return 2 * x


@sky.function
def slowly(value, seconds=0.3):
    time.sleep(seconds)
    return value


@sky.function
def nap(seconds):
    time.sleep(seconds)
    return "rested"


@sky.function
def wait_for(path, value=None, began=None):
    """Wait until there is a file; `began` is one that is there from now on."""
    if began is not None:
        began.touch()
    while not path.exists():
        time.sleep(0.01)
    return value
