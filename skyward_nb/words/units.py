"""Times and sizes as people write them, and suggestions for misspelt words. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from skyward_nb.words.errors import OptionError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_duration(option: str, text: str) -> float:
    """Seconds written as `90s`, `10m`, `4h`, `1d` or a bare number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text)
    if match is None or float(match[1]) == 0:
        raise OptionError(option, f"{option}={text}: give a time such as 90s, 10m or 4h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def read_seconds(option: str, given: float | str | None) -> float | None:
    """Seconds as a number, or written as on a line; None has no limit."""
    return read_duration(option, given) if isinstance(given, str) else given


_DECIMAL = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_BYTES = {**_DECIMAL, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_LEAST_BARE = 1000


def read_size(option: str, text: str) -> int:
    """Bytes written as `500MB`, `2GB`, `1.5GiB`, or a bare number of bytes from 1000 on: `2` lacks a unit."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?B?)", text.upper())
    unit = _spelt_out(match[2]) if match is not None else "?"
    if match is None or unit not in _BYTES or float(match[1]) == 0:
        raise OptionError(option, f"{option}={text}: give a size such as 500MB or 2GB")
    if not unit and float(match[1]) < _LEAST_BARE:
        raise OptionError(
            option,
            f"{option}={text} has no unit: write {option}={text}MB or {option}={text}GB; "
            f"{option}={text}B are bytes",
        )
    return int(float(match[1]) * _BYTES[unit])


def _spelt_out(unit: str) -> str:
    return unit + "B" if unit in ("K", "M", "G", "T") else unit


def is_unit(word: str) -> bool:
    """Whether a word is a unit of time or size, as it stands behind a number."""
    return bool(word) and (word.lower() in _UNITS or _spelt_out(word.upper()) in _BYTES)


def near_words(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean x?`, or nothing; with a higher `cutoff`, 1 at most, for nearer words alone."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {match[0]}?" if match else ""


def clock(seconds: float) -> str:
    """Seconds as a person reads them: `8 ms`, `3.1 s`, `12:07`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
