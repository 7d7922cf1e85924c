"""A run's manifest: what becomes of each name and definition that the run needs, and its size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from skyward_nb.names.unit import Unit, shown
from skyward_nb.pickling.diagnosis import kind_in_short

Status = Literal["sent", "unchanged", "kept on ranks", "removed"]
_STRONGEST: tuple[Status, ...] = ("sent", "kept on ranks", "unchanged", "removed")


@dataclass(frozen=True)
class ManifestRow:
    """One name of a run's manifest: bytes of payload, and seconds that packing it took.

    `size` is 0 when nothing was packed.
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
