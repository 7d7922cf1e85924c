"""GPUs cut into slices at a person's request, and restored: by NVIDIA's own tool.

Only a GPU that runs nothing and has no slices is cut; none is ever reset. Each change is noted in the
pool's folder before it is made, so that any process can undo it; and only noted changes are undone:
the instances that were created, and MIG mode if it was turned on.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from skyward_nb.system import nvidia_smi, processes
from skyward_nb.system.slices_note import NOTE, PATIENCE
from skyward_nb.words.decoding import from_json
from skyward_nb.words.mig import GpuCard, commands

_FORBIDDEN = "Insufficient Permissions"
_MADE = re.compile(r"Successfully created GPU instance ID\s+(\d+) on GPU")
_NONE = re.compile("No GPU instances found|No MIG-enabled devices found")
_ROW = re.compile(r"\|\s+\d+\s+MIG \S+\s+\d+\s+(\d+)\s+\S+\s+\|")


class PartitionFailed(Exception):
    """A GPU was not cut; the text is the reason, in the tool's own words."""


class MigPartition(msgspec.Struct, frozen=True):
    """The changes of a GPU: the ids of the instances made, and whether MIG was turned on.

    Instances end with the machine's `boot`: later, other instances may have their ids.
    """

    gpu: str
    turned_on: bool
    instances: tuple[int, ...] = ()
    boot: str = ""


def cut(folder: Path, card: GpuCard, profile: str, many: int) -> None:
    """Cut a GPU into so many slices; raises `PartitionFailed`, and `undo` then undoes what was begun."""
    _check_idle(card)
    done = _read(folder)
    made = MigPartition(card.uuid, not card.mig, boot=processes.boot())
    _write(folder, (*done, made))
    said = ""
    for command in commands(card, profile, many):
        said += _run(command)
        if instances := tuple(map(int, _MADE.findall(said))):
            _write(folder, (*done, msgspec.structs.replace(made, instances=instances)))
        # The tool reports success even if it could not turn MIG on.
        if " -mig 1" in command and not _is_on(card):
            raise PartitionFailed(said.strip())
    if len(_MADE.findall(said)) != many:
        raise PartitionFailed(said.strip())


def _check_idle(card: GpuCard) -> None:
    """Raise `PartitionFailed` unless a GPU surely runs nothing and is not cut."""
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
    """Restore the GPUs that a pool has cut; what could not be restored, in the tool's own words."""
    left: list[MigPartition] = []
    said: list[str] = []
    noted = _read(folder)
    present = {card.uuid: card for card in nvidia_smi.cards()} if noted else {}
    for made in noted:
        card = present.get(made.gpu)
        if made.boot != processes.boot():
            continue
        words = _restore(card, made) if card else "nvidia-smi does not list it"
        if card is None or _is_left(card, made):
            left.append(made)
            words = " ".join(words.split())
            said.append(f"{card or made.gpu} is still cut into slices: {words}")
    _write(folder, tuple(left))
    return "\n".join(said)


def _restore(card: GpuCard, made: MigPartition) -> str:
    tool = f"nvidia-smi mig -i {card.index}"
    own = [str(each) for each in _instances(card.index) or () if each in made.instances]
    said = ""
    if own:
        said += _run(f"{tool} -dci -gi {','.join(own)}")
        said += _run(f"{tool} -dgi -gi {','.join(own)}")
    # Other programs may have made slices since, which need it on.
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
    """The ids of a GPU's instances, also of those without compute instances; None if unknown."""
    said = _run(f"nvidia-smi mig -i {index} -lgi")
    found = tuple(map(int, _ROW.findall(said)))
    return found if found or _NONE.search(said) else None


def _is_on(card: GpuCard) -> bool:
    return any(each.uuid == card.uuid and each.mig for each in nvidia_smi.cards())


def _run(command: str) -> str:
    """The tool's output, also if it fails; as root where it must be and `sudo` asks for no password."""
    said = _ran(command)
    if _FORBIDDEN in said and shutil.which("sudo"):
        by_root = _ran(f"sudo -n {command}")
        return said if by_root.startswith("sudo:") else by_root
    return said


def _ran(command: str) -> str:
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


def _read(folder: Path) -> tuple[MigPartition, ...]:
    try:
        return from_json((folder / NOTE).read_bytes(), tuple[MigPartition, ...])
    except (OSError, msgspec.DecodeError):
        return ()


def _write(folder: Path, made: tuple[MigPartition, ...]) -> None:
    if made:
        new = folder / f"{NOTE}.new"
        new.write_bytes(msgspec.json.encode(made))
        new.rename(folder / NOTE)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / NOTE).unlink()
