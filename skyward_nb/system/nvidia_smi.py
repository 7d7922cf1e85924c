"""The GPUs of this machine and their slices, from NVIDIA's tool `nvidia-smi`.

The formats are those of the Multi-Instance GPU User Guide. Providers ask before anything is started;
agents ask where NVML is not installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess

from skyward_nb.words.mig import GpuCard, MigSlice

_LIMIT = 20.0
_GPU = re.compile(r"\s*GPU (\d+): (.+) \(UUID: (\S+)\)\s*")
_SLICE = re.compile(r"\s*MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+)\)\s*")


def ask(*words: str) -> str | None:
    """The output of `nvidia-smi` with these arguments; None if it is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        return subprocess.run(  # noqa: S603 - the driver's own tool, found in PATH
            [tool, *words], capture_output=True, text=True, timeout=_LIMIT, check=True
        ).stdout
    except (subprocess.SubprocessError, OSError):
        return None


def cards() -> tuple[GpuCard, ...]:
    """The GPUs of this machine; none without a driver."""
    modes = ask("--query-gpu=index,mig.mode.current", "--format=csv,noheader")
    listing = ask("-L")
    return read_cards(listing, modes or "") if listing else ()


def read_cards(listing: str, modes: str) -> tuple[GpuCard, ...]:
    """The GPUs of a `listing` by `nvidia-smi -L`; `modes` has, by index, whether each is cut."""
    by_index = dict(
        line.replace(" ", "").split(",", 1) for line in modes.splitlines() if "," in line
    )
    states = {"Enabled": True, "Disabled": False}
    found: list[GpuCard] = []
    for line in listing.splitlines():
        if match := _GPU.fullmatch(line):
            index, name, uuid = match.groups()
            found.append(GpuCard(int(index), name, uuid, states.get(by_index.get(index, ""))))
        elif found and (match := _SLICE.fullmatch(line)):
            last = found.pop()
            slices = (*last.slices, MigSlice(*match.groups()))
            found.append(GpuCard(last.index, last.name, last.uuid, last.mig, slices))
    return tuple(found)
