"""A machine with GPUs as far as NVIDIA's tool tells: see `nvidia/README.md`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

ANSWERS = Path(__file__).parent / "nvidia"
A100 = "NVIDIA A100-SXM4-80GB"


def gpu(number, *profiles, name=A100, mig="Enabled", **more):
    """A GPU, cut into slices of these profiles."""
    slices = [
        {"profile": profile, "gi": at, "uuid": f"MIG-{number}{at:07}-slice"}
        for at, profile in enumerate(profiles, 1)
    ]
    return {"name": name, "uuid": f"GPU-{number}0000000-card", "mig": mig, "slices": slices, **more}


def on_gpus(count):
    """The name to ask this machine's GPUs by; skips where there are too few."""
    from skyward_nb.providers.local import gpus as names

    found = names()
    if len(found) < count:
        pytest.skip(f"needs {count} NVIDIA GPU{'s' * (count > 1)}")
    return found[0].split()[1]


class Nvidia:
    """The tool in PATH, for this process and those it starts; NVML is not there."""

    def __init__(self, folder, monkeypatch):
        self._state = folder / "gpus.json"
        bin_folder, modules = folder / "bin", folder / "modules"
        bin_folder.mkdir()
        modules.mkdir()
        # By this very interpreter and without its packages: it starts in a third of the time.
        plays = bin_folder / "nvidia-smi"
        plays.write_text(f"#!{sys.executable} -IS\n{(ANSWERS / 'nvidia-smi').read_text()}")
        plays.chmod(0o755)
        (modules / "pynvml.py").write_text("raise ImportError('no NVML in this test')\n")
        there = [str(modules), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(there))
        monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_NVIDIA", str(self._state))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", None)

    def have(self, *gpus, **more):
        """These are the machine's GPUs from now on."""
        self._state.write_text(json.dumps({"gpus": gpus, **more}))

    def change(self, **more):
        """Something is different with the tool."""
        self._state.write_text(json.dumps({**self.state, **more}))

    @property
    def state(self):
        return json.loads(self._state.read_text())

    @property
    def profiles(self):
        """What each GPU is cut into; None where MIG is off."""
        return [
            [each["profile"] for each in gpu["slices"]] if gpu["mig"] == "Enabled" else None
            for gpu in self.state["gpus"]
        ]

    def asked(self):
        """What was done to GPUs, and forget it."""
        state = self.state
        changing = ("-mig", "-cgi", "-dci", "-dgi", "--gpu-reset", "-r")
        done = [each for each in state.get("asked", []) if {*each.split()} & {*changing}]
        self.change(asked=[])
        return done
