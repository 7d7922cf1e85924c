"""The options of `%sky logs` and `skyward-nb logs`, as one value. Pure."""

from __future__ import annotations

import msgspec

from skyward_nb.words.errors import OptionError


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whose output is wanted, of a run or of machines (`node`), and how; what is not stated is empty.

    Raises `OptionError` for options of a run beside `node`.
    """

    run: str = ""
    rank: str = ""
    node: str = ""
    lines: int | None = None
    save: str = ""

    def __post_init__(self) -> None:
        for option, value in (("run", self.run), ("rank", self.rank)):
            if value and self.node:
                raise OptionError(
                    option,
                    f"{option}={value} selects the output of a run, and node={self.node} that of "
                    "machines: state one of them",
                )

    @property
    def stated(self) -> tuple[str, ...]:
        """The names of the options that are stated."""
        return tuple(name for name in self.__struct_fields__ if getattr(self, name))
