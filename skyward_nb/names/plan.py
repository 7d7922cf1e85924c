"""The plan of a run, and its manifest: the names and definitions that it needs, their state and size."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from skyward_nb.names.unit import Unit, shown
from skyward_nb.pickling.diagnosis import kind_in_short
from skyward_nb.protocol.commands import ModuleFile, Parcel, SourceFile
from skyward_nb.store.blobs import CorruptValue
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.errors import PayloadError, spell_size

Status = Literal["sent", "unchanged", "kept on ranks", "removed"]
_STRONGEST: tuple[Status, ...] = ("sent", "kept on ranks", "unchanged", "removed")


@dataclass(frozen=True)
class ManifestRow:
    """One name of a run's manifest: bytes of payload, and seconds that packing it took.

    `size` is 0 if nothing was packed.
    """

    name: str
    status: Status
    type_name: str = ""
    size: int = 0
    seconds: float = 0.0


def rows_of(
    units: Iterable[Unit], sending: Iterable[Unit], is_assigned: Callable[[str], bool]
) -> dict[str, ManifestRow]:
    """A row for each name and definition of these units, of which some are sent.

    `is_assigned` tells whether ranks have a newer value of a name.
    """
    rows: dict[str, ManifestRow] = {}
    going = {label: unit for unit in sending for label in unit.labels}
    for unit in units:
        for label, value in zip(unit.labels, unit.values, strict=True):
            status: Status = "kept on ranks" if is_assigned(label) else "unchanged"
            if label in going:
                status = "sent"
            name, packed = shown(label, value), going.get(label, unit)
            row = ManifestRow(
                name, status, kind_in_short(value), packed.bundle.size, packed.seconds
            )
            rows[name] = _merged(rows[name], row) if name in rows else row
    return rows


def _merged(first: ManifestRow, second: ManifestRow) -> ManifestRow:
    """One row for a name and the definition it is bound to."""
    status: Status = next(s for s in _STRONGEST if s in (first.status, second.status))
    size, seconds = first.size + second.size, first.seconds + second.seconds
    return ManifestRow(first.name, status, first.type_name, size, seconds)


UnitForRanks = tuple[Unit, tuple[int, ...] | None]
"""A unit and the ranks that get it; None for all."""


@dataclass(frozen=True)
class Plan:
    """Everything that a run sends, and its manifest (`rows`)."""

    units: tuple[Unit, ...] = ()
    sending: tuple[UnitForRanks, ...] = ()
    removed: tuple[str, ...] = ()
    sources: tuple[SourceFile, ...] = ()
    modules: tuple[ModuleFile, ...] = ()
    imports: tuple[str, ...] = ()
    rows: tuple[ManifestRow, ...] = ()
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    told: frozenset[tuple[object, ...]] = frozenset()
    """The subjects of all remarks, those of `notes` and of earlier, equal notes."""

    @property
    def sent_bytes(self) -> int:
        """Payload bytes of the names sent."""
        return sum(row.size for row in self.rows if row.status == "sent")

    def largest(self) -> str:
        """The three largest names sent, with their sizes."""
        rows = sorted((row for row in self.rows if row.status == "sent"), key=lambda row: -row.size)
        return ", ".join(f"{row.name} {spell_size(row.size)}" for row in rows[:3])

    def stow(
        self,
        store_of: Callable[[tuple[int, ...] | None], ContentStore],
        tick: Callable[[], None] = lambda: None,
    ) -> tuple[Parcel, ...]:
        """The parcels; large values are put into the store of the ranks that get them (`None`: all).

        `tick` is called now and then meanwhile. Raises `PayloadError` if there is no room, and removes
        the values that it has put there.
        """
        parcels: list[Parcel] = []
        new: list[tuple[ContentStore, str]] = []
        for unit, ranks in self.sending:
            store, bundle = store_of(ranks), unit.bundle
            try:
                if bundle.is_stowed and store.put(bundle.digest, bundle.parts, tick):
                    new.append((store, bundle.digest))
            except OSError as error:
                for each, digest in new:
                    each.drop([digest])
                raise no_room(unit.shown, type(unit.values[0]).__name__, error) from error
            except CorruptValue as error:
                raise changed(unit.shown, type(unit.values[0]).__name__, error) from error
            parcels.append(Parcel(unit.labels, bundle.stowed(store), ranks, unit.parcel))
        return tuple(parcels)


def no_room(name: str, type_name: str, error: OSError) -> PayloadError:
    """The error for a value that cannot be written to the ranks' store."""
    advice = "Free memory, or have the cell load the data on the ranks."
    lack = "does not fit on the ranks' machine"
    if error.errno != errno.ENOSPC:
        advice, lack = "Nothing was sent.", "cannot be written to the ranks' store"
    return PayloadError(name, name, type_name, error.strerror or str(error), advice, lack)


def changed(name: str, type_name: str, error: CorruptValue) -> PayloadError:
    """The error for a value whose bytes changed on the way to the ranks' store."""
    advice = (
        "It changed while it was packed (does a thread still write to it?). Nothing was sent to "
        "ranks; the next run sends it again."
    )
    return PayloadError(name, name, type_name, str(error), advice, "did not arrive as it was")
