"""The options of a run, as one value with a field for each option of a cell. Pure."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.words.errors import OptionError

_FIELDS = {"as": "target"}
_OF_CARD = (
    "out", "pull", "gather", "stdout", "stderr", "limit", "timeout", "on_error", "profile",
)  # fmt: skip
_those_of_card = operator.attrgetter(*_OF_CARD)


def _is_plain_name(name: str) -> bool:
    return name.isidentifier() and not name.startswith("__")


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """The options of a run, with their defaults; `stated` has the names of those that are stated.

    `push` None sends the names that the cell needs; `text` and `limit` None depend on the notebook's room;
    `target` is the value of `as=`; `fetch` and `folder` are about the working folder of a script,
    `cells` the cells that become one; `now` ends machines that would be stopped, or were; `remove` removes an image.
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
    replace: bool = False
    profile: str = ""
    quiet: bool = False
    target: str = ""
    fetch: tuple[str, ...] = ()
    cells: tuple[int, ...] = ()
    folder: str = "auto"
    now: bool = False
    remove: bool = False
    stated: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> CellOptions:
        """From values by the names of their options."""
        values = {_FIELDS.get(name, name): value for name, value in given.items()}
        return cls(**values, stated=tuple(given))

    @property
    def asks_for_value(self) -> bool:
        """Whether the run's value is asked for, not just shown where it can be."""
        return bool(self.out) or "gather" in self.stated or self.gather == "head"

    def check_values_wanted(self, *, has_value: bool) -> None:
        """Raise `OptionError` if `out=` or `pull=` asks for a value that will not come back."""
        out = self.out
        if (out or self.pull) and self.gather == "none":
            option = "out" if out else "pull"
            raise OptionError(option, f"{option}= and gather=none: there would be nothing to bind")
        if out and not has_value and not self.detach:
            raise OptionError(
                "out",
                f"out={out}: the cell does not end with an expression, so it has no value. "
                f"End it with one (no `;`), or bring names of the ranks with pull=...",
            )

    def over(self, weaker: CellOptions) -> CellOptions:
        """These options, completed by weaker ones."""
        if not weaker.stated:
            return self
        stated = tuple(dict.fromkeys((*weaker.stated, *self.stated)))
        fields = [_FIELDS.get(name, name) for name in self.stated]
        return dataclasses.replace(
            weaker, **{name: getattr(self, name) for name in fields}, stated=stated
        )

    @classmethod
    def of_card(cls, card: RunCard, *, only_values: bool = False) -> CellOptions:
        """The options as stated by the client that began the run.

        With `only_values` its machine may state others: names that Python or IPython may look up are left out.
        """
        options = cls(**{name: getattr(card, name) for name in _OF_CARD})
        if not only_values:
            return options
        pull = tuple(filter(_is_plain_name, options.pull))
        return dataclasses.replace(
            options, pull=pull, out=options.out if _is_plain_name(options.out) else ""
        )

    def card(self) -> RunCard:
        """The options for other clients; fields about the cell are empty."""
        shared = dict(zip(_OF_CARD, _those_of_card(self), strict=True))
        return RunCard(**shared, most_text=self.text, detached=self.detach)
