"""What a run sends to ranks, and the manifest that tells of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from skyward_nb.names.manifest import ManifestRow
from skyward_nb.names.unit import Unit
from skyward_nb.protocol.commands import ModuleFile, Parcel, SourceFile
from skyward_nb.store.blobs import CorruptValue
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.errors import PayloadError, spell_size

Sending = tuple[Unit, tuple[int, ...] | None]
"""A unit and the ranks that get it; None for all."""


@dataclass(frozen=True)
class Plan:
    """What a run sends, and the manifest that tells of it."""

    units: tuple[Unit, ...] = ()
    sending: tuple[Sending, ...] = ()
    removed: tuple[str, ...] = ()
    sources: tuple[SourceFile, ...] = ()
    modules: tuple[ModuleFile, ...] = ()
    imports: tuple[str, ...] = ()
    rows: tuple[ManifestRow, ...] = ()
    notes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    told: frozenset[tuple[object, ...]] = frozenset()
    """What `notes` are about, and earlier notes were that would be the same."""

    @property
    def sent_bytes(self) -> int:
        """Payload bytes of the names sent."""
        return sum(row.size for row in self.rows if row.status == "sent")

    def largest(self) -> str:
        """The names that make up most of what is sent, with their sizes."""
        rows = sorted((row for row in self.rows if row.status == "sent"), key=lambda row: -row.size)
        return ", ".join(f"{row.name} {spell_size(row.size)}" for row in rows[:3])

    def stow(
        self,
        store_of: Callable[[tuple[int, ...] | None], ContentStore],
        tick: Callable[[], None] = lambda: None,
    ) -> tuple[Parcel, ...]:
        """The parcels, large ones by way of the store of the ranks that get them (`None`: all).

        `tick` is called now and then while those are written. Raises `PayloadError` where there is
        no room, with nothing left of what was not there before.
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
    """The error for what cannot be written to the ranks' store."""
    advice = "Free memory, or have the cell load the data on the ranks."
    lack = "does not fit on the ranks' machine"
    if error.errno != errno.ENOSPC:
        advice, lack = "Nothing was sent.", "cannot be written to the ranks' store"
    return PayloadError(name, name, type_name, error.strerror or str(error), advice, lack)


def changed(name: str, type_name: str, error: CorruptValue) -> PayloadError:
    """The error for what came to the ranks' store as something else."""
    advice = (
        "It changed while it was packed (does a thread still write to it?). Nothing was sent to "
        "ranks; the next run sends it again."
    )
    return PayloadError(name, name, type_name, str(error), advice, "did not arrive as it was")
