"""A task's shell scripts on a node: its setup, once for each text, and what it runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from skyward_nb.runtime.instance import instance_info
from skyward_nb.words.info import InstanceInfo

_LONG = 1.5
"""Seconds for a shell and its children to end after an interrupt."""
_done: set[str] = set()
"""Setups that this rank has done."""


def run(setup: str, text: str, env: Mapping[str, str], folder: str, name: str) -> None:
    """Run a task on this rank's node, in this folder where there is that one; raises SystemExit with its code."""
    info = instance_info()
    if info.worker:
        return
    variables = {**os.environ, **_variables(info, name), **env}
    # `python` and `torchrun` are those of the ranks.
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables.get('PATH', '')}"
    here = folder if os.path.isdir(folder) else None  # noqa: PTH112
    if setup and setup not in _done:
        if code := _shell(setup, variables, here):
            print(f"setup ended with code {code}", file=sys.stderr)
            raise SystemExit(code)
        _done.add(setup)
    if text and (code := _shell(text, variables, here)):
        raise SystemExit(code)


def _variables(info: InstanceInfo, name: str) -> dict[str, str]:
    """SkyPilot's variables that ranks do not have already."""
    addresses = "\n".join(peer.address for peer in info.peers)
    cluster = {"cluster_name": name or info.job_id, "cloud": "", "region": "", "zone": ""}
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
