"""Values that are nobody's to read: of variables whose name says so, never shown in words of ours. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

MASK = "***"

# `TOKENIZERS_PARALLELISM` is no secret.
_SECRET = re.compile(r"TOKEN(?!IZ)|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)

_USER = re.compile(r"(?<=:)//[^/@\s'\"]+@")


def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds what is not to be shown."""
    return _SECRET.search(name) is not None


def masked(values: Mapping[str, str]) -> dict[str, str]:
    """These variables, the values of secret ones masked."""
    return {name: MASK if is_secret(name) else value for name, value in values.items()}


def masked_text(text: str) -> str:
    """`NAME=VALUE,...` as it was written, the values of secret names masked.

    Once there was one, what follows without a name of its own is taken for a piece of it.
    """
    parts: list[str] = []
    hides = False
    for part in text.split(","):
        name, equals, _ = part.partition("=")
        hides = is_secret(name) if equals else hides
        shown = f"{name}={MASK}" if equals else MASK
        parts.append(shown if hides else part)
    return ",".join(parts)


def masked_address(text: str) -> str:
    """A text with addresses in it, such as `pip` takes them, without the users and passwords in those."""
    return _USER.sub(f"//{MASK}@", text)


def masked_repr(struct: msgspec.Struct, *, brief: bool = False) -> str:
    """The repr of a struct that has variables or addresses among its fields, what is secret masked.

    A `brief` one is without fields that are empty.
    """
    values = {name: getattr(struct, name) for name in struct.__struct_fields__}
    shown = (
        f"{name}={masked(value) if isinstance(value, dict) else masked_address(repr(value))}"
        for name, value in values.items()
        if value or not brief
    )
    return f"{type(struct).__name__}({', '.join(shown)})"
