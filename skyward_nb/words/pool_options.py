"""How a pool is run, as one value beside what it is: `Options`. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from skyward_nb.words.errors import OptionError


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of a pool belong together.

    With `cluster` False each node stands alone: its ranks are a world of their own, without a head, and
    plugins that would join all ranks are refused. Raises `OptionError` for other values than True and False.
    """

    cluster: bool = True

    def __post_init__(self) -> None:
        given: Any = self.cluster
        if not isinstance(given, bool):
            raise OptionError("cluster", f"cluster={given!r}: write True or False")
