"""The state of a rank's models, kept while all ranks are begun anew since one of them died.

A rank writes it into its machine's folder of values (`plugins/torch_rescue`), each model into a file as torch saves,
with a `KeptEntry` beside it; `sky.rejoin` takes it. The machine's agent has it stay while ranks are begun anew
after a death, and removes it before any other generation.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from skyward_nb.compat.torch_models_private import COMPILED
from skyward_nb.words.decoding import from_json

_FOLDER = "kept-state"
"""A folder: what is not one, in a folder of values, may be trimmed."""
_TWICE = (
    "the state of models with these parameters was kept at two deaths, and which of the two is wanted "
    "cannot be told: load the last checkpoint"
)
Shapes = dict[str, tuple[int, ...]]


class KeptModel(TypedDict):
    """The state of a model, and those of its optimizers and their schedules by the names of their classes."""

    model: dict[str, Any]
    others: list[tuple[str, dict[str, Any]]]


class KeptEntry(msgspec.Struct, frozen=True):
    """A model that `rank` kept for ranks of the generation `made`, the `number`th of those; or `why` it is lost.

    `is_current`: it was trained, or had rejoined, and was not just made anew. One that is lost without
    `shapes` stands for all that are not there.
    """

    made: int
    rank: int
    number: int
    shapes: Shapes
    others: tuple[str, ...] = ()
    is_current: bool = True
    why: str = ""

    @property
    def origin(self) -> tuple[int, int]:
        """What was kept together has the same."""
        return self.made, self.rank


class KeptState:
    """What is kept on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER
        self._handed_on_to = 0
        self.taken: weakref.WeakSet[Any] = weakref.WeakSet()
        """The modules of this process that have rejoined."""

    # ── for ranks ───────────────────────────────────────────────────────────────────────

    def entries(self) -> list[KeptEntry]:
        """What nobody has taken yet, in the order in which it was kept."""
        found: list[KeptEntry] = []
        for each in self._folder.glob("*.json"):
            with contextlib.suppress(
                FileNotFoundError
            ):  # another rank of the machine has just taken it
                found.append(from_json(each.read_bytes(), KeptEntry))
        return sorted(found, key=lambda each: (each.origin, each.number))

    def read(self, entry: KeptEntry) -> KeptModel:
        """Its state, mapped from the file; raises what torch raises."""
        import torch

        # Optimizers and schedules may keep any object. The file is of this user's own rank, in a folder of its own.
        return torch.load(self._path(entry), map_location="cpu", mmap=True, weights_only=False)

    def save(self, entry: KeptEntry, state: KeptModel) -> None:
        """Write a model's state, which is there once the entry is."""
        import torch

        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        torch.save(state, self._path(entry))

    def write(self, *entries: KeptEntry) -> None:
        """These are kept, or lost."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in entries:
            part = self._folder / f"part-{os.getpid()}"
            part.write_bytes(msgspec.json.encode(each))
            part.replace(self._path(each).with_suffix(".json"))

    def remove(self, entries: Iterable[KeptEntry]) -> None:
        """These are there no more, if they were."""
        for each in entries:
            self._path(each).with_suffix(".json").unlink(missing_ok=True)
            self._path(each).unlink(missing_ok=True)

    def _path(self, entry: KeptEntry) -> Path:
        return self._folder / f"{entry.made}-{entry.rank}-{entry.number}.pt"

    # ── for the agent ───────────────────────────────────────────────────────────────────

    def hand_on(self, generation: int) -> None:
        """What is kept, and is not taken, is for the ranks of this generation."""
        self._handed_on_to = generation

    def begin(self, generation: int) -> None:
        """Ranks of this generation come, and there are no others: remove what is not theirs."""
        if not self._folder.is_dir():
            return
        whole = {each.stem for each in self._folder.glob("*.json")}
        for each in self._folder.iterdir():
            # A rank may have been killed as it wrote.
            if generation != self._handed_on_to or each.stem not in whole:
                with contextlib.suppress(OSError):
                    each.unlink()


here: KeptState | None = None
"""That of this process; None outside a pool."""


def begin(folder: Path) -> None:
    """This process is a rank, and has values in this folder."""
    global here
    here = KeptState(folder)


def bare(model: Any) -> Any:
    """The user's own module in what `torch.compile` and `DistributedDataParallel` made of it."""
    from torch import nn

    while True:
        if isinstance(inner := getattr(model, COMPILED, None), nn.Module):
            model = inner
        elif isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def shapes_of(module: Any) -> Shapes:
    """What has a shape in its state, by name; DTensors of one that is sharded have the whole one."""
    state = module.state_dict().items()
    return {name: tuple(each.shape) for name, each in state if hasattr(each, "shape")}


def pop_kind(states: list[tuple[str, dict[str, Any]]], kind: str) -> dict[str, Any] | None:
    """Take the first state of this kind out of these; None where there is none."""
    place = next((n for n, (name, _) in enumerate(states) if name == kind), None)
    return None if place is None else states.pop(place)[1]


def choose(
    entries: Sequence[KeptEntry], shapes: Shapes, names: Sequence[str]
) -> tuple[KeptEntry | Exception, list[KeptEntry]]:
    """Which of these entries a model with such optimizers and schedules takes, or why none; and which are over then."""
    lost = [each for each in entries if each.why and each.shapes == shapes]
    alike = [each for each in entries if not each.why and each.shapes == shapes]
    if not alike and not lost:
        lost = [each for each in entries if each.why and not each.shapes]
    if lost:
        return RuntimeError(lost[0].why), [*lost, *alike]
    if not alike:
        count = sum(not each.why for each in entries)
        return ValueError(
            f"rank {entries[0].rank} kept {count} model{'s' * (count != 1)}, and none has these parameters: "
            "make the model as it was, or load a checkpoint"
        ), []
    trained = {each.origin for each in alike if each.is_current}
    if len(trained) > 1:
        return RuntimeError(_TWICE), alike
    origin = min(trained or {each.origin for each in alike})
    those = [each for each in alike if each.origin == origin]
    for each in those:
        if all(names.count(name) <= each.others.count(name) for name in names):
            return each, [each, *(other for other in alike if other.origin != origin)]
    had = ", ".join(those[0].others) or "nothing"
    return ValueError(
        f"with this model rank {those[0].rank} kept {had}; given were {', '.join(names)}. Only optimizers that "
        "have its parameters, and their schedules, are kept"
    ), []


class PresentModel(msgspec.Struct, frozen=True):
    """A model of a rank when another one died.

    `has_gone_on`: it has rejoined, or an optimizer of it was seen to step. `may_have` gone on: its optimizer has state, which
    may be a checkpoint's.
    """

    shapes: Shapes
    has_gone_on: bool = False
    may_have: bool = False

    @property
    def is_current(self) -> bool:
        """Whether it may be further than what was kept before."""
        return self.has_gone_on or self.may_have


def worth_keeping(
    present: Sequence[PresentModel], untaken: Sequence[KeptEntry]
) -> tuple[list[int], list[KeptEntry]]:
    """Which of the present models to keep, by number, beside what was kept before; and what of that is over.

    A model that was only made anew is no match for the state that it has not taken yet.
    """
    waiting = [each.shapes for each in untaken]
    keep = [n for n, each in enumerate(present) if each.is_current or each.shapes not in waiting]
    over: list[KeptEntry] = []
    for entry in untaken:
        alike = [each for each in present if each.shapes == entry.shapes]
        if alike and all(each.has_gone_on for each in alike):
            over.append(entry)  # the training went on without it
    return keep, over
