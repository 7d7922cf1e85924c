"""A task's shell scripts on a node: its setup, once for each text, and what it runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from skyward_nb.runtime.instance import instance_info
from skyward_nb.store.blobs import digest_of
from skyward_nb.words.info import InstanceInfo
from skyward_nb.workdir.working_folder import copies_root, placed

_LONG = 1.5
"""Seconds for a shell and its children to end after an interrupt."""


def run(
    setup: str,
    text: str,
    env: Mapping[str, str],
    folder: str,
    name: str,
    key: str = "",
    mounts: Sequence[tuple[str, str, str]] = (),
    place: tuple[str, str, str] = ("", "", ""),
) -> None:
    """Run a task on this rank's node, in this folder where there is that one; raises SystemExit with its code.

    With a `key` it is in the copy of its folder on this machine. `mounts` are paths that lead to other copies, by
    their keys, or to a file there; `place` are cloud, region and zone.
    """
    folder = placed(key, folder)
    info = instance_info()
    if info.worker:
        return
    for target, *copy in mounts:
        _link(target, placed(*copy))
    variables = {**os.environ, **_variables(info, name, place), **env}
    # `python` and `torchrun` are those of the ranks.
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables.get('PATH', '')}"
    here = folder if os.path.isdir(folder) else None  # noqa: PTH112
    if setup:
        done = _mark(info.node, setup, env, folder)
        if not done.exists():
            if code := _shell(setup, variables, here):
                print(f"setup ended with code {code}", file=sys.stderr)
                raise SystemExit(code)
            done.touch()
    if text and (code := _shell(text, variables, here)):
        raise SystemExit(code)


def _mark(node: int, setup: str, env: Mapping[str, str], folder: str) -> Path:
    """The file which says that this setup is done on a node, as long as its pool is up."""
    said = "\0".join((setup, *(f"{key}={value}" for key, value in sorted(env.items())), folder))
    return Path(os.environ["SKYWARD_POOL"], f"setup-{node}-{digest_of([os.fsencode(said)])}")


def _link(target: str, source: str) -> None:
    """Have a path lead to a copy; raises SystemExit where something else is there, or nothing can be put there."""
    path = Path(target).expanduser()
    is_ours = path.is_symlink() and path.readlink().is_relative_to(copies_root())
    if os.path.lexists(path) and not is_ours:
        raise SystemExit(f"file_mounts: {path} is there already: name another path, or remove it")
    # Another node of this machine may do the same.
    new = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.symlink_to(source)
        new.replace(path)
    except OSError as error:
        raise SystemExit(
            f"file_mounts: {path} cannot be made ({error.strerror}): name a path that you can write, such as ~/data"
        ) from None


def _variables(info: InstanceInfo, name: str, place: tuple[str, str, str]) -> dict[str, str]:
    """SkyPilot's variables that ranks do not have already."""
    addresses = "\n".join(peer.address for peer in info.peers)
    cloud, region, zone = place
    cluster = {
        "cluster_name": name or info.job_id,
        "cloud": cloud,
        "region": region,
        "zone": zone,
    }
    return {
        "SKYPILOT_CLUSTER_INFO": json.dumps(cluster),
        "SKYPILOT_SETUP_NODE_IPS": addresses,
        "SKYPILOT_SETUP_NODE_RANK": str(info.node),
        "SKYPILOT_SETUP_NUM_GPUS_PER_NODE": str(info.accelerators),
    }


def _shell(text: str, env: dict[str, str], folder: str | None) -> int:
    """The exit code of a text in bash, 128 and the number of a signal that ended it."""
    shell = subprocess.Popen(["bash", "-c", text], env=env, cwd=folder, start_new_session=True)  # noqa: S603, S607
    try:
        code = shell.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(_LONG)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        raise
    return code if code >= 0 else 128 - code
