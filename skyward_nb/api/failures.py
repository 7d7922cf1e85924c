"""Failures of ranks as one exception to raise: the user's own, with notes of where and on whom."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from skyward_nb.wire.blobs import BlobStore
from skyward_nb.wire.payload import unpack
from skyward_nb.words.errors import RankDied, RemoteError
from skyward_nb.words.messages import Failure, RankDone, RankLost
from skyward_nb.words.ranks import count_ranks


def exception_of(
    failed: list[RankDone], world_size: int, store: BlobStore, aftermath: tuple[str, ...] = ()
) -> BaseException:
    """The exception of the first rank that failed, itself, noting all ranks that failed.

    Equal failures (type, message and place) are told once with their ranks, different ones
    one by one in the order they happened. `aftermath` is shown below.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    first: dict[tuple[object, ...], Failure] = {}
    for end in failed:
        failure = end.failure
        assert failure is not None
        key = (failure.type_name, failure.message, failure.at)
        groups.setdefault(key, []).append(end.rank)
        first.setdefault(key, failure)
    keys = list(groups)
    leader = first[keys[0]]
    error = _rebuild(leader, store)
    notes = [
        _note(first[key], sorted(groups[key]), world_size, whole=key != keys[0]) for key in keys
    ]
    for note in notes:
        with contextlib.suppress(Exception):  # not by the class's own add_note
            BaseException.add_note(error, note)
    show(error, [*leader.traceback, *notes, *aftermath])
    return error


def died(lost: dict[int, RankLost], words: dict[int, str], aftermath: str) -> RankDied:
    """The error for ranks whose processes ended; `words` is what each last wrote."""
    by_how: dict[str, list[int]] = {}
    for rank, loss in sorted(lost.items()):
        by_how.setdefault(loss.how, []).append(rank)
    said = "; ".join(f"{count_ranks(ranks)} {how}" for how, ranks in by_how.items())
    lines = [said]
    lines += [
        f"last words of rank {rank}:\n    " + words[rank].replace("\n", "\n    ")
        for rank in sorted(lost)
        if words.get(rank)
    ]
    lines.append(aftermath)
    return RankDied({rank: loss.how for rank, loss in lost.items()}, "\n".join(lines))


def show(error: BaseException, lines: list[str]) -> None:
    """Let IPython render `error` by these lines: frames of this package say nothing to a user."""
    render: Callable[[], list[str]] = lambda: lines  # noqa: E731 - an attribute, not a function of ours
    try:
        error._render_traceback_ = render  # type: ignore[attr-defined]
    except AttributeError:
        # A class with __slots__ takes none: IPython then shows the frames of the notebook.
        return


def _rebuild(failure: Failure, store: BlobStore) -> BaseException:
    if failure.value is not None:
        try:
            error = unpack(failure.value, store)
        except Exception:  # noqa: BLE001 - a user's exception that cannot be rebuilt
            error = None
        if isinstance(error, BaseException):
            return error
    return RemoteError(failure.type_name, failure.message)


def _note(failure: Failure, ranks: list[int], world_size: int, *, whole: bool) -> str:
    what = f"{failure.type_name}: {failure.message}" if whole else "raised"
    text = f"{what} on {count_ranks(ranks)} of {world_size}"
    if failure.at is not None:
        text += f", {failure.at.where}, line {failure.at.line}: {failure.at.text}"
    return text
