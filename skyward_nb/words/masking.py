"""Masks secret values, which variables' names reveal, in all messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

MASK = "***"

# `TOKENIZERS_PARALLELISM` is no secret.
_SECRET = re.compile(r"TOKEN(?!IZ)|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)

_USER = re.compile(r"(?<=:)//[^/@\s'\"]+@")


def is_secret(name: str) -> bool:
    """Whether a variable or option of this name has a secret value."""
    return _SECRET.search(name) is not None


def masked(values: Mapping[str, str]) -> dict[str, str]:
    """These variables, the values of secret ones masked."""
    return {name: MASK if is_secret(name) else value for name, value in values.items()}


def masked_text(text: str) -> str:
    """`NAME=VALUE,...` as written, with the values of secret names masked.

    A part without a name belongs to the value before it.
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
    """A text with addresses, such as requirements of pip, without their users and passwords."""
    return _USER.sub(f"//{MASK}@", text)


def masked_setting(option: str, text: str) -> str:
    """The text of an option's value as it may be shown: without secret variables and passwords."""
    return masked_text(text) if option == "env" else masked_address(text)


def masked_repr(struct: msgspec.Struct, *, brief: bool = False) -> str:
    """The repr of a struct with variables or addresses, with secrets masked; a `brief` one has no empty fields."""
    values = {name: getattr(struct, name) for name in struct.__struct_fields__}
    shown = (
        f"{name}={masked(value) if isinstance(value, dict) else masked_address(repr(value))}"
        for name, value in values.items()
        if value or not brief
    )
    return f"{type(struct).__name__}({', '.join(shown)})"
