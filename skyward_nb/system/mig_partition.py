"""GPUs cut into slices because a person asked for it, and put together again: by NVIDIA's own tool.

Only a GPU is cut that runs nothing and has no slices, and none is ever reset by us. What is about to
be done stands in a note in the pool's folder first, so that whoever finds the folder can undo it; and
only what the note names is undone: the very instances that were made, and MIG where it was turned on.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from skyward_nb.system import nvidia_smi
from skyward_nb.words.mig import GpuCard, commands

PATIENCE = 120.0
"""Seconds that the tool may take: the driver readies a GPU anew when MIG is turned on or off."""

_NOTE = "slices.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MADE = re.compile(r"Successfully created GPU instance ID\s+(\d+) on GPU")
_NONE = re.compile("No GPU instances found|No MIG-enabled devices found")
_ROW = re.compile(r"\|\s+\d+\s+MIG \S+\s+\d+\s+(\d+)\s+\S+\s+\|")


class PartitionFailed(Exception):
    """A GPU was not cut; the text is why, in the tool's own words."""


class MigPartition(msgspec.Struct, frozen=True):
    """What is done to a GPU: the instances made, by their ids, and whether MIG was turned on.

    Instances do not outlive the machine's life `boot`: after it, others may have their ids.
    """

    gpu: str
    turned_on: bool
    instances: tuple[int, ...] = ()
    boot: str = ""


def cut(folder: Path, card: GpuCard, profile: str, many: int) -> None:
    """Cut a GPU into so many slices; raises `PartitionFailed`, and `undo` then has what was begun."""
    _check_idle(card)
    done = _read(folder)
    made = MigPartition(card.uuid, not card.mig, boot=_boot())
    _write(folder, (*done, made))
    said = ""
    for command in commands(card, profile, many):
        said += _run(command)
        if instances := tuple(map(int, _MADE.findall(said))):
            _write(folder, (*done, msgspec.structs.replace(made, instances=instances)))
        # It says that all is done where it could not turn MIG on, too.
        if " -mig 1" in command and not _is_on(card):
            raise PartitionFailed(said.strip())
    if len(_MADE.findall(said)) != many:
        raise PartitionFailed(said.strip())


def _check_idle(card: GpuCard) -> None:
    """Raise `PartitionFailed` for a GPU that runs something or is cut, or may be."""
    if card.slices or _instances(card.index) != ():
        raise PartitionFailed(f"{card} has slices already, which may be in use")
    listing = nvidia_smi.ask(
        "-i", str(card.index), "--query-compute-apps=pid", "--format=csv,noheader"
    )
    if listing is None:
        raise PartitionFailed(f"nvidia-smi does not say what runs on {card}")
    if busy := re.findall(r"^\s*(\d+)", listing, re.MULTILINE):
        raise PartitionFailed(f"{card} is used by process {', '.join(busy)}")


def undo(folder: Path) -> str:
    """Put together what a pool has cut; what could not be, in the tool's own words."""
    left: list[MigPartition] = []
    said: list[str] = []
    noted = _read(folder)
    present = {card.uuid: card for card in nvidia_smi.cards()} if noted else {}
    for made in noted:
        card = present.get(made.gpu)
        if made.boot != _boot():
            continue
        words = _put_together(card, made) if card else "nvidia-smi does not list it"
        if card is None or _is_left(card, made):
            left.append(made)
            words = " ".join(words.split())
            said.append(f"{card or made.gpu} is still cut into slices: {words}")
    _write(folder, tuple(left))
    return "\n".join(said)


def is_noted(folder: Path) -> bool:
    """Whether there is something that a pool has cut, or is about to."""
    return (folder / _NOTE).exists()


def _put_together(card: GpuCard, made: MigPartition) -> str:
    tool = f"nvidia-smi mig -i {card.index}"
    own = [str(each) for each in _instances(card.index) or () if each in made.instances]
    said = ""
    if own:
        said += _run(f"{tool} -dci -gi {','.join(own)}")
        said += _run(f"{tool} -dgi -gi {','.join(own)}")
    # Slices that somebody else has made since need it on.
    if made.turned_on and _instances(card.index) == ():
        said += _run(f"nvidia-smi -i {card.index} -mig 0")
    return said


def _is_left(card: GpuCard, made: MigPartition) -> bool:
    there = _instances(card.index)
    if there is None:
        return True
    is_on_for_nobody = made.turned_on and not there and _is_on(card)
    return is_on_for_nobody or any(each in made.instances for each in there)


def _instances(index: int) -> tuple[int, ...] | None:
    """The ids of a GPU's instances, those without compute instances, too; None where none can tell."""
    said = _run(f"nvidia-smi mig -i {index} -lgi")
    found = tuple(map(int, _ROW.findall(said)))
    return found if found or _NONE.search(said) else None


def _is_on(card: GpuCard) -> bool:
    return any(each.uuid == card.uuid and each.mig for each in nvidia_smi.cards())


def _run(command: str) -> str:
    """What the tool says, whatever comes of it."""
    tool, *words = command.split()
    try:
        ran = subprocess.run(  # noqa: S603 - the driver's own tool, found in PATH
            [shutil.which(tool) or tool, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except (subprocess.SubprocessError, OSError) as error:
        return f"{command}: {error}\n"
    return ran.stdout


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _read(folder: Path) -> tuple[MigPartition, ...]:
    try:
        return msgspec.json.decode((folder / _NOTE).read_bytes(), type=tuple[MigPartition, ...])
    except (OSError, msgspec.DecodeError):
        return ()


def _write(folder: Path, made: tuple[MigPartition, ...]) -> None:
    if made:
        new = folder / f"{_NOTE}.new"
        new.write_bytes(msgspec.json.encode(made))
        new.rename(folder / _NOTE)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / _NOTE).unlink()
