"""What is asked of one run, as one value: a field for each option of a cell. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyward_nb.protocol.message_parts import RunCard

_FIELDS = {"as": "target"}


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """Options of a run as they are read, and what holds where one is not given.

    `push` is None for what the cell needs, `text` and `limit` for what the notebook has room for;
    `target` is what `as=` says.
    """

    ranks: str = "all"
    out: str = ""
    pull: tuple[str, ...] = ()
    gather: str = "all"
    push: tuple[str, ...] | None = None
    stdout: str = "all"
    stderr: str = "all"
    text: int | None = None
    limit: int | None = None
    timeout: float | None = None
    on_error: str = "stop"
    detach: bool = False
    dry_run: bool = False
    profile: str = ""
    quiet: bool = False
    target: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CellOptions:
        """Of what was given, by the names of options."""
        return cls(**{_FIELDS.get(name, name): value for name, value in given.items()})

    @classmethod
    def of_card(cls, card: RunCard) -> CellOptions:
        """As the client that began a run said them."""
        return cls(
            out=card.out,
            pull=card.pull,
            gather=card.gather,
            stdout=card.stdout,
            stderr=card.stderr,
            limit=card.limit,
            timeout=card.timeout,
            on_error=card.on_error,
            profile=card.profile,
        )

    def card(self) -> RunCard:
        """What another client must know of them; of the cell it says nothing."""
        return RunCard(
            out=self.out,
            pull=self.pull,
            gather=self.gather,
            stdout=self.stdout,
            stderr=self.stderr,
            most_text=self.text,
            limit=self.limit,
            detached=self.detach,
            timeout=self.timeout,
            on_error=self.on_error,
            profile=self.profile,
        )
