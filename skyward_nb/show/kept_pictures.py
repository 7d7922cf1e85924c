"""The last pictures of runs on disk, beside their logs: `%sky show` draws them again, in any notebook.

<log root>/<pool id>/7.picture    the bundle of run 7, as JSON
<log root>/<pool id>/7.value      its cell's value as `{data, metadata}`, where JupyterLab ran it
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from skyward_nb.logs.log_files import log_root
from skyward_nb.words.decoding import from_json
from skyward_nb.words.errors import OptionError

MOST_PICTURES = 500
MOST_BYTES = 500_000_000
_SWEEP_PICTURES = 64
_MOST_OF_A_VALUE = 1_000_000
_VALUE = ".value"
_kept = 0


def keep(run: str, data: dict[str, object]) -> None:
    """Keep the bundle of a run, in the place of an earlier one.

    Where nothing can be written the run has no picture there; that its log has the same trouble is told.
    """
    global _kept
    with contextlib.suppress(OSError, RuntimeError):
        _write(_path(run), msgspec.json.encode(data))
        if _kept % _SWEEP_PICTURES == 0:
            sweep(MOST_PICTURES, MOST_BYTES)
        _kept += 1


def keep_value(run: str, shown: object) -> None:
    """Keep how a cell showed its value below the picture of its run, which is kept; nothing of a very large one.

    Jupyter's own encoder takes more than plain JSON, such as a number of NumPy: such a value is not kept.
    """
    with contextlib.suppress(OSError, RuntimeError, TypeError, ValueError):
        path = _path(run)
        if path.exists() and len(text := msgspec.json.encode(shown)) <= _MOST_OF_A_VALUE:
            _write(path.with_suffix(_VALUE), text)


def find_value(run: str) -> dict[str, object] | None:
    """What was kept of the value of `default-3fa2b1/7`: its `data` and `metadata`; None where there is none."""
    with contextlib.suppress(OSError, RuntimeError, msgspec.DecodeError):
        return from_json(_path(run).with_suffix(_VALUE).read_bytes(), dict[str, object])
    return None


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(f".new{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    new.replace(path)


def find_picture(run: str, pool_ids: Collection[str]) -> dict[str, object]:
    """The bundle of the run that `7` (of these pools), `default-3fa2b1/7` or nothing (the newest) means.

    Raises `OptionError` when there is no picture of it.
    """
    pool_id, slash, number = run.rpartition("/")
    among = {pool_id} if slash else set(pool_ids)
    for _, _, path in reversed(_there()):
        if path.parent.name in among and number in ("", path.stem):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                return from_json(path.read_bytes(), dict[str, object])
    what = (
        f"run={run}: there is no picture of it" if run else "no run of this notebook has a picture"
    )
    raise OptionError(
        "run",
        f"{what} on disk. %sky logs{f' run={run}' if run else ''} prints its output; a run that goes "
        "on without its notebook is shown by %sky attach",
    )


def sweep(most: int, most_bytes: int) -> None:
    """Remove the oldest pictures until at most so many of so many bytes are left."""
    there = _there()
    size, count = sum(bytes_ for _, bytes_, _ in there), len(there)
    for _, bytes_, path in there:
        if count <= most and size <= most_bytes:
            return
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            path.with_suffix(_VALUE).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            path.parent.rmdir()
        size, count = size - bytes_, count - 1


def _path(run: str) -> Path:
    pool_id, _, number = run.rpartition("/")
    return log_root() / pool_id / f"{number}.picture"


def _there() -> list[tuple[float, int, Path]]:
    """(when it was written, bytes, path) of each picture with its value, the oldest first."""
    found: list[tuple[float, int, Path]] = []
    with contextlib.suppress(OSError, RuntimeError):
        for path in log_root().glob("*/*.picture"):
            with contextlib.suppress(OSError):
                about, size = path.stat(), 0
                with contextlib.suppress(FileNotFoundError):
                    size = path.with_suffix(_VALUE).stat().st_size
                found.append((about.st_mtime, about.st_size + size, path))
    return sorted(found)
