"""Real kernels that rent machines, and what of it may be left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from cloud.sky import Cloud
from cluster.notebooks import Notebook
from kernels import Kernel, kernel
from leaks import leaves_nothing

START = """
import os, socket, sys, time
import skyward_nb as sky
here = sky.Image(interpreter=sys.executable)
"""
OPTIONS = "provider=aws region=us-east-1 instance_type=c6i.large image=here yes"


@contextmanager
def rented(cloud: Cloud, *, nodes: int = 2, shared: Kernel | None = None) -> Iterator[Notebook]:
    """A kernel whose pools are of this cloud; when they are down nothing is left, here or there.

    One that is `shared` goes on afterwards, without names.
    """
    with leaves_nothing(), nullcontext(shared) if shared else kernel() as running:
        assert running.run(START).status == "ok"
        yield Notebook(running, options=f"{OPTIONS} nodes={nodes}")
        for each in ("%sky down all", "%reset -f"):
            ran = running.run(each, 60)
            assert ran.status == "ok", ran.traceback
    cloud.nothing_left()
