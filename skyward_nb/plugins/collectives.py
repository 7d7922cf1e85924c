"""Which collective a thread waits in, by the names of its frames. Pure.

A frame is a file and a function. Where it can be told, a function of native code that the
innermost frame calls comes first of all, as a frame without a file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType

from skyward_nb.compat.known_frames import (
    A_COMPUTATION_OF_JAX,
    ALIKE,
    BACKWARD,
    BETWEEN,
    COMMUNICATION,
    COMPILED,
    COMPUTING,
    INTERRUPT,
    LAUNCHER,
    LOGGING,
    NATIVE,
    PACKAGES,
    REDUCERS,
    STRATEGY,
    SYNC,
    TENSORFLOW,
    TENSORFLOW_ENGINE,
    THREADING,
    WAIT,
)

NamedFrame = tuple[str, str]
"""File and function."""

_ABORTED = re.compile(r"Collective ops is aborted|/tensorflow\.WorkerService/")
_LOST = re.compile(
    r"replaced by KeyboardInterrupt|gloo|nccl|connection|timed? ?out|socket|peer|store",
    re.IGNORECASE,
)
_JAX_LOST = re.compile(r"[A-Z_]+: Gloo ")
"""The beginnings of JAX's errors of gloo: a RuntimeError, or a ValueError of compiled code."""
_MOST = 200
_OWN = str(Path(__file__).parents[1])


def waits_in(frames: Iterable[NamedFrame]) -> str:
    """The collective that a thread with these frames, innermost first, waits in; or "".

    It is named by the outermost function of the communication package below the user's own code:
    `all_reduce`, `barrier`, `new_group`. What ends in autograd's engine waits in `backward`: a
    thread that is found there in a process with a group averages gradients, or computes; so is one
    that reads an array of JAX.
    """
    frames = list(frames)
    if any(file.endswith(LAUNCHER) for file, _ in frames):
        return ""  # an elastic agent, which waits for its own workers
    if any(file.endswith(LOGGING[0]) and function == LOGGING[1] for file, function in frames):
        return ""
    rest = iter(frames)
    first = next(rest, ("", ""))
    native = ""
    if not first[0]:
        native = A_COMPUTATION_OF_JAX if first[1] == COMPILED else NATIVE.get(first[1], "")
        first = next(rest, ("", ""))
    if first[0].endswith(BACKWARD[0]) and first[1] == BACKWARD[1]:
        return "backward"
    if any(first[0].endswith(file) and first[1] in functions for file, functions in COMPUTING):
        native = A_COMPUTATION_OF_JAX
    named: list[NamedFrame] = []
    within = _within(_interrupted([first, *rest]))
    for file, function in within:
        if any(part in file for part in PACKAGES) and not file.endswith(BETWEEN):
            named.append((file, function))
        elif not any(part in file for part in BETWEEN):
            break
    return native if all(map(_is_quick, named)) else _known_name(named)


def _is_quick(frame: NamedFrame) -> bool:
    """Whether a frame is one of this package that never waits."""
    ours = next((place for place in (SYNC, REDUCERS) if frame[0].endswith(place)), "")
    return bool(ours) and (ours, frame[1]) not in WAIT


def _interrupted(frames: Iterable[NamedFrame]) -> list[NamedFrame]:
    """The frames of what an interrupt came upon, without those that raise it."""
    return list(itertools.dropwhile(lambda each: each[0].endswith(INTERRUPT), frames))


def _within(frames: list[NamedFrame]) -> list[NamedFrame]:
    """The frames from where a thread may wait for others; none of TensorFlow's where it does not.

    A thread in TensorFlow's native code computes or waits for others: nobody can tell. A strategy
    that waits for its own threads does as they do.
    """
    own = next((n for n, (file, _) in enumerate(frames) if not file.endswith(THREADING)), 0)
    if own:
        return frames[own:] if STRATEGY in frames[own][0] else []
    file, function = frames[0] if frames else ("", "")
    if TENSORFLOW not in file:
        return frames
    for place, name in TENSORFLOW_ENGINE:
        if file.endswith(place) and name in ("", function):
            return frames
    return []


def _known_name(named: list[NamedFrame]) -> str:
    """The outermost public function that communicates, else the outermost of all."""
    for file, function in reversed(named):
        for (place, name), alike in ALIKE.items():
            if function == name and file.endswith(place):
                return alike
    public = [frame for frame in named if not frame[1].startswith(("_", "<"))]
    talking = [frame for frame in public if frame[0].endswith(COMMUNICATION)]
    return (talking or public or named)[-1][1]


def frames_of_thread(frame: FrameType | None) -> Iterator[NamedFrame]:
    """The frames of a live thread, innermost first; before them the function it calls."""
    return frames_below("" if frame is None else _called(frame, frame.f_lasti), frame)


def _called(frame: FrameType, at: int) -> str:
    """The function that a frame calls at an instruction; a compiled one of JAX by its kind."""
    called = called_at(frame.f_code, at)
    found = frame.f_locals.get(called, frame.f_globals.get(called))
    return COMPILED if type(found).__name__ == COMPILED else called


def lost_a_computation(error: BaseException) -> bool:
    """Whether an interrupt came upon a call of what JAX has compiled: what it computes nobody has then."""
    passed = [each for each in _passed(error) if not each[0].f_code.co_filename.startswith(_OWN)]
    return bool(passed) and _called(*passed[-1]) == COMPILED


def frames_below(called: str, frame: FrameType | None, most: int = _MOST) -> Iterator[NamedFrame]:
    """The function that a live thread calls, then its frames, innermost first, at most so many."""
    if frame is not None:
        yield "", called
    count = 0
    while frame is not None and count < most:
        yield frame.f_code.co_filename, frame.f_code.co_name
        frame = frame.f_back
        count += 1


def frames_of_error(error: BaseException) -> list[NamedFrame]:
    """The frames an exception came through, innermost first; before them the function that raised it.

    What came up while another exception was handled, as an interrupt does that has waited for a
    collective to return, goes on with that one's frames where it was handled.
    """
    passed = _passed(error)
    context = error.__context__
    if context is not None and (within := _passed(context)):
        for number, (frame, _) in enumerate(passed):
            if frame is within[0][0]:
                passed, error = passed[:number] + within, context
                break
    if not passed:
        return []
    called = called_at(passed[-1][0].f_code, passed[-1][1])
    # What else ended a `get` may have been a dictionary's.
    native = called == "wait" or lost_its_peers(error)
    names = [(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in passed[-_MOST:]]
    return [("", called if native else ""), *reversed(names)]


def _passed(error: BaseException) -> list[tuple[FrameType, int]]:
    """The frames of a traceback, outermost first, and the instruction each was at."""
    found: list[tuple[FrameType, int]] = []
    trace = error.__traceback__
    while trace is not None:
        found.append((trace.tb_frame, trace.tb_lasti))
        trace = trace.tb_next
    return found


def error_waited_in(error: BaseException | None) -> str:
    """The collective an exception was raised out of, or the one it came upon was."""
    for each in _those_before(error):
        frames = frames_of_error(each)
        if (name := waits_in(frames)) and (_only_waits(frames) or _was_aborted(each)):
            return name
        if name := _of_jax(each):
            return name
    return ""


def came_through(error: BaseException, function: str) -> bool:
    """Whether an exception, or one that it came upon, was raised within a function of this name."""
    return any(
        name == function for each in _those_before(error) for _, name in frames_of_error(each)[1:]
    )


def _those_before(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it was raised for or came upon, the latest first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _only_waits(frames: list[NamedFrame]) -> bool:
    """Whether what these frames are in does nothing but wait; what is TensorFlow's may have computed."""
    return not any(TENSORFLOW in file for file, _ in _interrupted(frames[1:])[:1])


def _was_aborted(error: BaseException) -> bool:
    before = error.__context__
    return lost_its_peers(error) or (before is not None and lost_its_peers(before))


def _of_jax(error: BaseException) -> str:
    """A computation's failure by its message: what is compiled leaves no frame of its own."""
    return A_COMPUTATION_OF_JAX if _JAX_LOST.match(_text_of(error)) else ""


def _text_of(error: BaseException) -> str:
    """An exception's text; "" where its class cannot say it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's broken __str__
        return ""


def lost_its_peers(error: BaseException) -> bool:
    """Whether a collective raised this for its peers or the line to them, not for its arguments."""
    if type(error).__module__.startswith("tensorflow."):
        return _ABORTED.search(_text_of(error)) is not None
    if isinstance(error, ValueError):
        return _JAX_LOST.match(_text_of(error)) is not None
    return isinstance(error, RuntimeError) and _LOST.search(_text_of(error)) is not None


def called_at(code: CodeType, at: int) -> str:
    """The name of the function that the instruction at this offset calls; "" if there is none.

    The function of a call begins in the source where the call does: of the names loaded from
    there before it, the one that reaches farthest.
    """
    import dis

    before = [each for each in dis.get_instructions(code) if each.offset <= at]
    if not before or not before[-1].opname.startswith(("CALL", "PRECALL")):
        return ""
    place = before[-1].positions
    if place is None or place.lineno is None:
        return ""
    best, name = (-1, -1), ""
    for each in before:
        where = each.positions
        if where is None or (where.lineno, where.col_offset) != (place.lineno, place.col_offset):
            continue
        end = where.end_lineno or -1, where.end_col_offset or -1
        whole = place.end_lineno or -1, place.end_col_offset or -1
        if each.opname.startswith("LOAD_") and isinstance(each.argval, str) and best <= end < whole:
            best, name = end, each.argval
    return name
