"""Real kernels that rent machines, and what of it may be left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cloud.sky import Cloud
from cluster.notebooks import Notebook
from kernels import kernel
from leaks import leaves_nothing

START = """
import os, socket, sys, time
import skyward_nb as sky
here = sky.Image(interpreter=sys.executable)
"""
OPTIONS = "provider=aws region=us-east-1 instance_type=c6i.large image=here yes"


@contextmanager
def rented(cloud: Cloud, *, nodes: int = 2, **env: str) -> Iterator[Notebook]:
    """A kernel whose pools are of this cloud; when they are down nothing is left, here or there."""
    with leaves_nothing(), kernel(**env) as running:
        assert running.run(START).status == "ok"
        yield Notebook(running, options=f"{OPTIONS} nodes={nodes}")
        down = running.run("%sky down all", 60)
        assert down.status == "ok", down.traceback
    cloud.nothing_left()
