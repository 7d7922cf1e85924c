"""The accelerator a person asks for, as one value: `A100`, `A100:8`, `none`."""

from __future__ import annotations

import re

import msgspec

from skyward_nb.words.errors import OptionError

_FORM = re.compile(r"^(?P<name>[A-Za-z][A-Za-z0-9.\-]*)(?::(?P<count>\d+))?$")


class Accelerator(msgspec.Struct, frozen=True):
    """`count` accelerators called `name` on each node."""

    name: str
    count: int = 1

    def __str__(self) -> str:
        return self.name if self.count == 1 else f"{self.name}:{self.count}"


def parse_accelerator(text: str) -> Accelerator | None:
    """Read `A100`, `A100:8` or `none`; raise `OptionError` for anything else."""
    if text.lower() == "none":
        return None
    match = _FORM.match(text)
    count = int(match["count"] or 1) if match else 0
    if match is None or count < 1:
        raise OptionError(
            "accelerator",
            f"accelerator={text}: write a name and, if more than one on each node, a count of "
            "1 or more: accelerator=A100, accelerator=A100:8, accelerator=none",
        )
    return Accelerator(match["name"], count)
