"""A person's process, which may be killed at any moment: a pool up, a cell run, the pool down.

`main` is a process that others are forked from, so that what takes long to import is imported once. On
stdin come lines of JSON: what to do, with what, in which environment, and where to write what is said.
It answers what the process ended with, as `subprocess` has it. It ends when stdin does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
import traceback
import warnings
from typing import Any

import asyncssh  # noqa: F401 - imported for those that are forked
import boto3  # noqa: F401
from cloud import models, retries
from pools import start, values

from skyward_nb.bootstrap.package import Package
from skyward_nb.providers.aws import boot, provisioning, quoting  # noqa: F401 - the same
from skyward_nb.providers.aws import sweep as sweeping
from skyward_nb.reports import baked_images
from skyward_nb.words.errors import OptionError, SkyError
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import AWSAccess

retries.at_once()
_MOST = 170
"""Seconds that a process may take."""


def say(*words: object) -> None:
    print(*words, flush=True)


def pool(
    nodes: int = 1,
    kind: str = "c6i.large",
    spot: bool = False,
    user: str | None = None,
    answers_within: float | None = None,
    body: str = "import os\nos.environ['RANK']",
    skew: float = 0.0,
    warm: float | None = None,
    image: str = "",
) -> None:
    """Up, run, down; with a clock that is wrong by `skew` seconds. With `warm` its machines are stopped for so long.

    An `image` of this name is made of its head's machine.
    """
    if skew:
        right = time.time
        time.time = lambda: right() + skew

    if answers_within is not None:
        boot._LIMIT = answers_within
    # Seconds until it is looked whether machines that nobody can log in to have ended.
    boot._LOOK = 1.0
    # Seconds in which EC2 may refuse to say whether an image is ready.
    baked_images._REFUSED_FOR = 3.0
    made = start(
        provider="aws",
        aws=AWSAccess(region="us-east-1", instance_type=kind, user=user, warm=warm),
        spot="auto" if spot else "no",
        nodes=nodes,
        idle=3.0,
        image=Image(interpreter=sys.executable),
    )
    say("up")
    try:
        say("ran", values(made, body))
        if image:
            baked_images.check(made.spec, made.pool_id, image)
            made.close(image=image)
            say("baked", baked_images.wait(made.spec.name, image, "us-east-1"))
    finally:
        made.close()
        say("down", made.closing.kept)


def replaced() -> None:
    """Up with two nodes, one of which somebody takes back; a run on one in its place, and down."""
    made = start(
        provider="aws",
        aws=AWSAccess(region="us-east-1", instance_type="c6i.large"),
        idle=30.0,
        image=Image(interpreter=sys.executable),
        on_preempt="replace",
    )
    say("up")
    try:
        while not made.look(lambda _: None):
            time.sleep(0.1)
        say("ran", values(made, "1"))
    finally:
        made.close()


def sweep(now: bool = False) -> None:
    """Look for what was left, and end it, `now` also machines that are stopped for a later pool."""
    say(asyncio.run(sweeping.sweep(ends_stopped=now)))


def unbake(name: str) -> None:
    """Remove an image, which may be gone."""
    try:
        say(baked_images.remove(name))
    except OptionError as error:
        say(error)


# ── forking ─────────────────────────────────────────────────────────────────────────────


def _begin(task: dict[str, Any]) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        said = os.open(task["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(said, 1)
        os.dup2(said, 2)
        signal.alarm(_MOST)
        os.environ.update(task["env"])
        warnings.simplefilter("default")
        {"pool": pool, "replaced": replaced, "sweep": sweep, "unbake": unbake}[task["what"]](
            **task["how"]
        )
        code = 0
    except SkyError as error:
        say(f"{type(error).__name__}: {error}")
        code = 3
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    models.read()
    Package().archive  # noqa: B018 - packed for those that are forked
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        task = json.loads(line)
        if "pid" in task:
            code = os.waitstatus_to_exitcode(os.waitpid(task["pid"], 0)[1])
            print(code, flush=True)
        else:
            print(_begin(task), flush=True)
