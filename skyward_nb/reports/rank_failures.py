"""Failures of ranks as one exception to raise: the user's own, with notes of where and on whom."""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from skyward_nb.hangs.hang import StalledRun, report, sentence, spell_span
from skyward_nb.hangs.stacks import ThreadStack
from skyward_nb.pickling.payload import unpack
from skyward_nb.protocol.events import RankDone, RankLost
from skyward_nb.protocol.message_parts import Failure, Frame, RaisedError
from skyward_nb.reports.tracebacks import traceback_of
from skyward_nb.store.content_store import ContentStore
from skyward_nb.words.bounds import MESSAGE, bounded
from skyward_nb.words.errors import RankDied, RemoteError, RunTimeout
from skyward_nb.words.ranks import count_ranks, ranks_by

_OF_ONE_PROCESS = re.compile(r"\[[0-9a-fA-F.:]+\]:\d+|0x[0-9a-f]+")
"""What differs from rank to rank in words that are the same: an address with its port, an object's."""
_MOST_NOTES = 16
_MOST_OTHERS = 3
"""The most failures that are listed with the headline of another one."""
_MOST_TOLD = 120
"""Most characters of a message, or of a line of code, beside a headline."""
_MOST_OF_OTHERS = 2000
"""Most bytes that a note has of a message."""


@dataclass(frozen=True)
class RankFailure:
    """Ranks that raised the same exception, with the same message at the same place.

    `where` is `Cell In[3]`, or a script's file, and `line` a line of that, whose source is `text`;
    they are empty, and 0, for exceptions raised outside of the user's own code. `first` is the rank
    that raised it first.
    """

    ranks: tuple[int, ...]
    type_name: str
    message: str
    where: str
    line: int
    text: str
    first: int


def failures_of(failed: Iterable[RankDone]) -> tuple[RankFailure, ...]:
    """What ranks raised, equal ones together, in the order in which they were raised."""
    groups: dict[tuple[str, str, Frame], list[int]] = {}
    messages: dict[tuple[str, str, Frame], str] = {}
    for end in failed:
        failure = end.failure
        assert failure is not None
        alike = same_on_all(failure.message)
        key = (failure.type_name, alike, failure.at or Frame("", 0, ""))
        groups.setdefault(key, []).append(end.rank)
        messages.setdefault(key, failure.message)
    return tuple(
        RankFailure(
            tuple(sorted(ranks)), key[0], messages[key], at.where, at.line, at.text, first=ranks[0]
        )
        for key, ranks in groups.items()
        for at in (key[2],)
    )


def same_on_all(message: str) -> str:
    """A message without addresses and ports, which differ from rank to rank."""
    return _OF_ONE_PROCESS.sub("…", message)


def headline_of(failures: Sequence[RankFailure], world_size: int) -> tuple[str, tuple[str, ...]]:
    """A headline on what failed first, and notes: its whole message if that is cut, its place, and what else failed."""
    alike: dict[tuple[str, str], list[RankFailure]] = {}
    for each in failures:
        alike.setdefault((each.type_name, same_on_all(_first_line(each.message))), []).append(each)
    headlines: list[str] = []
    places: list[str] = []
    for first, *others in alike.values():
        ranks = (rank for each in (first, *others) for rank in each.ranks)
        what = f"{first.type_name} on {count_ranks(ranks)} of {world_size}"
        message = _first_line(first.message)
        headlines.append(f"{what}: {message}" if message else what)
        text = f": {first.text.strip()}" if first.text else ""
        places.append(_cut(f"{first.where}, line {first.line}{text}") if first.where else "")
    headline, *rest = headlines
    message = failures[0].message.strip()
    is_cut = len(_whole_first_line(message)) > _MOST_TOLD
    notes = bounded(message, _MOST_OF_OTHERS).splitlines() if is_cut else []
    notes += [places[0]] if places[0] else []
    told = zip(rest[:_MOST_OTHERS], places[1:], strict=False)
    notes += [f"{what} ({place})" if place else what for what, place in told]
    if (more := len(rest) - _MOST_OTHERS) > 0:
        notes.append(f"{more} more, each told below")
    return headline, tuple(notes)


def brief(failures: Sequence[RankFailure], world_size: int) -> str:
    """What failed on whom, without messages: they stand in the exception."""
    ranks: dict[str, list[int]] = {}
    for each in failures:
        ranks.setdefault(each.type_name, []).extend(each.ranks)
    words = [f"{name} on {count_ranks(whose)} of {world_size}" for name, whose in ranks.items()]
    if (more := len(words) - _MOST_OTHERS) > 0:
        words[_MOST_OTHERS:] = [f"{more} more"]
    places = {f", {each.where}, line {each.line}" if each.where else "" for each in failures}
    return "; ".join(words) + (places.pop() if len(places) == 1 else "")


def _first_line(text: str) -> str:
    """The first line that says something, cut where it is long."""
    return _cut(_whole_first_line(text))


def _whole_first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "").strip()


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[: _MOST_TOLD - 1].rstrip()}…"


def exception_of(
    failed: Sequence[RankDone],
    world_size: int,
    store: ContentStore,
    run_notes: tuple[str, ...] = (),
    *,
    only_values: bool = False,
) -> BaseException:
    """The exception of the first rank that failed, itself, noting all ranks that failed.

    With `only_values` it is made of its text, and of Python's own classes alone. Its `failures` are those of all ranks. Each of these has a note, and so has each word of the
    `run_notes`.
    """
    assert failed[0].failure is not None
    leader = failed[0].failure
    failures = failures_of(failed)
    error = _of_text(leader) if only_values else _rebuild(leader, store)
    _put_before(error, leader, store, only_values=only_values)
    notes = [_note(each, world_size, whole=number > 0) for number, each in enumerate(failures)]
    if (more := len(notes) - _MOST_NOTES) > 0:
        notes[_MOST_NOTES:] = [f"{more} more failures: `error.failures` lists all"]
    notes += run_notes
    for note in notes:
        with contextlib.suppress(Exception):  # not by the class's own add_note
            BaseException.add_note(error, note)
    # An exception with __slots__ has no room for them.
    with contextlib.suppress(AttributeError):
        error.failures = failures  # type: ignore[attr-defined]
    show(error, [*leader.traceback, *notes])
    return error.with_traceback(traceback_of(leader.frames))


def died(
    lost: Mapping[int, RankLost],
    words: Mapping[int, str],
    run_notes: str,
    places: Mapping[int, str] = MappingProxyType({}),
    then: Collection[int] = (),
) -> RankDied:
    """The error for ranks whose processes ended; `words` is what each last wrote.

    `places` is where those were in the user's code of which that is known; the others' deaths are the
    cause of those of `then`.
    """
    lines = how_died(lost, places, then)
    lines += [
        f"last words of rank {rank}:\n    " + bounded(words[rank]).replace("\n", "\n    ")
        for rank in sorted(lost)
        if words.get(rank)
    ]
    lines += [run_notes] if run_notes else []
    return RankDied({rank: loss.how for rank, loss in lost.items()}, "\n".join(lines))


def how_died(
    lost: Mapping[int, RankLost], places: Mapping[int, str], then: Collection[int] = ()
) -> list[str]:
    """A line on how ranks ended, the cause first, then their places in the user's code if known."""
    by_how = ranks_by({rank: (rank in then, loss.how) for rank, loss in lost.items()})
    told = sorted(by_how.items(), key=lambda each: each[0][0])
    said = "; ".join(f"{count_ranks(ranks)} {how}" for (_, how), ranks in told)
    return [said, *_crashed(places)] if said else []


def _crashed(places: Mapping[int, str]) -> list[str]:
    """Where ranks crashed, those in the same place together."""
    return [
        f"{count_ranks(ranks)} {'was' if len(ranks) == 1 else 'were'} in {place}"
        for place, ranks in ranks_by(places).items()
    ]


def timed_out(
    timeout: float,
    halt: StalledRun,
    stacks: Mapping[int, tuple[ThreadStack, ...]],
    run_notes: tuple[str, ...] = (),
) -> RunTimeout:
    """The error for a run that was stopped after its `timeout`, and how it stood then."""
    error = RunTimeout(timeout, tuple(sorted(halt.running)), stacks, why_stopped(timeout, halt))
    for note in (report(halt), *run_notes):
        if note:
            error.add_note(note)
    return error


def why_stopped(timeout: float, halt: StalledRun) -> str:
    """What was going on after so many seconds, in a sentence."""
    words = sentence(halt) or "all ranks came to the cell's end"
    return f"after {spell_span(timeout)} {words}"


def show(error: BaseException, lines: list[str]) -> None:
    """Let IPython render `error` by these lines: frames of this package say nothing to a user."""
    render: Callable[[], list[str]] = lambda: lines  # noqa: E731 - an attribute
    try:
        error._render_traceback_ = render  # type: ignore[attr-defined]
    except AttributeError:
        # A class with __slots__ takes none: IPython then shows the frames of the notebook.
        return


def _rebuild(failure: RaisedError, store: ContentStore) -> BaseException:
    if failure.value is not None:
        try:
            error = unpack(failure.value, store, only_values=False)
        except Exception:  # noqa: BLE001 - a user's exception that cannot be rebuilt
            error = None
        if isinstance(error, BaseException):
            return _readable(error, failure)
    return RemoteError(failure.type_name, failure.message)


def _put_before(
    error: BaseException, failure: Failure, store: ContentStore, *, only_values: bool
) -> None:
    """Give the exception, made of a failure, those that Python shows before it."""
    later: RaisedError = failure
    for each in failure.before:
        before = _of_text(each) if only_values else _rebuild(each, store)
        before = BaseException.with_traceback(before, traceback_of(each.frames))
        link = "__cause__" if later.suppresses else "__context__"
        BaseException.__setattr__(error, link, before)  # not by the class's own __setattr__
        error, later = before, each
    BaseException.__setattr__(error, "__suppress_context__", later.suppresses)


def _of_text(failure: RaisedError) -> BaseException:
    """An exception of Python's own class of that name, where there is one, with the failure's message."""
    kind = getattr(builtins, failure.type_name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # a few take more than a text
            return kind(failure.message)
    return RemoteError(failure.type_name, failure.message)


def _readable(error: BaseException, failure: RaisedError) -> BaseException:
    """The exception, with the failure's message for a text of its own class's making that is huge, or cannot be had.

    A notebook keeps the text of an exception that ends a cell, whatever is shown of it.
    """
    try:
        is_readable = len(str(error)) <= 2 * MESSAGE
    except Exception:  # noqa: BLE001 - a user's broken __str__
        is_readable = False
    if not is_readable:
        kind = type(error)
        names = {
            "__slots__": (),
            "__module__": kind.__module__,
            "__str__": lambda _: failure.message,
        }
        with contextlib.suppress(Exception):  # a user's class may be made by a class of its own
            error.__class__ = type(kind.__name__, (kind,), names)
    return error


def _note(failure: RankFailure, world_size: int, *, whole: bool) -> str:
    message = bounded(failure.message, _MOST_OF_OTHERS)
    what = f"{failure.type_name}: {message}" if whole else "raised"
    text = f"{what} on {count_ranks(failure.ranks)} of {world_size}"
    if failure.where:
        text += f", {failure.where}, line {failure.line}: {failure.text}"
    return text
