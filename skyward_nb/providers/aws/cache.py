"""Answers of AWS, kept on disk with their date, so that not every start asks again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

from skyward_nb.words.decoding import from_json

T = TypeVar("T")
_KEPT = 30 * 86400.0


class CachedAnswer(msgspec.Struct, frozen=True):
    """An answer, and when it was given, in seconds since 1970."""

    at: float
    answer: msgspec.Raw


def _folder() -> Path:
    state = os.environ.get("SKYWARD_STATE_DIR")
    return Path(state) / "market" if state else platformdirs.user_cache_path("skyward_nb") / "aws"


class Cache:
    """Answers by their questions, for one account; files that cannot be read or written are ignored."""

    def __init__(self, view: str, folder: Path | None = None) -> None:
        self._folder = folder or _folder()
        self._view = view

    def find(self, asked: tuple[object, ...], kind: type[T], within: float) -> T | None:
        """The answer, if it was given within so many seconds."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            said = from_json(self._path(asked).read_bytes(), CachedAnswer)
            if 0 <= time.time() - said.at <= within:
                return from_json(said.answer, kind)
        return None

    def keep(self, asked: tuple[object, ...], answer: object) -> None:
        """Keep an answer that was given now."""
        path = self._path(asked)
        said = CachedAnswer(time.time(), msgspec.Raw(msgspec.json.encode(answer)))
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._forget_old()
            new = path.with_name(f"{path.name}.{os.getpid()}.new")
            new.write_bytes(msgspec.json.encode(said))
            new.rename(path)

    def _forget_old(self) -> None:
        for each in self._folder.iterdir():
            if time.time() - each.stat().st_mtime > _KEPT:
                each.unlink(missing_ok=True)

    def _path(self, asked: tuple[object, ...]) -> Path:
        words = msgspec.json.encode((self._view, *asked))
        return self._folder / f"{hashlib.sha256(words).hexdigest()[:32]}.json"
