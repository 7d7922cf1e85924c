"""Arguments of Python code as the texts of options, and those texts read as the option line reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skyward_nb.options.option_table import BY_NAME
from skyward_nb.words.errors import OptionError


def as_text(option: str, value: Any) -> str:
    """The text of an argument on an option line."""
    match option, value:
        case "mesh", Mapping():
            return ",".join(f"{name}:{size}" for name, size in value.items())
        case "mesh", list() | tuple():
            return msgspec.json.encode(value).decode()
        case (("simulate" | "spot" | "trust_local_users" | "yes" | "resume"), bool()):
            return "yes" if value else "no"
        case option, int() | float() if option in _NUMBERS and not isinstance(value, bool):
            return str(value)
        case _, str():
            return value
        case _:
            raise OptionError(option, f"{option}= cannot be {value!r}")


_NUMBERS = {
    "nodes", "ranks_per_node", "ttl", "idle", "grace", "cpus", "memory", "max_cost", "max_hourly_cost",
    "confirm_above", "memory_limit", "cpu_limit", "warm",
}  # fmt: skip
"""Arguments that are numbers, or their texts."""


def of_text(option: str, name: str, text: str) -> Any:
    """The value of a text as option `name` reads it; an error names the argument `option`."""
    try:
        return BY_NAME[name].value(text)
    except OptionError as error:
        raise OptionError(option, error.message.replace(f"{name}=", f"{option}=", 1)) from None
