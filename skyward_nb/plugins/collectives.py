"""Which collective a thread waits in, by the names of its frames. Pure.

A frame is a file and a function. Where it can be told, a function of native code that the
innermost frame calls comes first of all, as a frame without a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

NamedFrame = tuple[str, str]
"""File and function."""

_NATIVE = {"wait": "work.wait", "get": "store.get", "block_until_ready": "block_until_ready"}
"""Methods of native objects that user code calls itself, and what they are called then."""
A_COMPUTATION_OF_JAX = "a computation of JAX"
_COMPILED = "PjitFunction"
"""What a function that JAX has compiled is an instance of; a call of it may wait for peers."""

_TENSORFLOW = "/tensorflow/python/"
_TENSORFLOW_ENGINE = (
    (f"{_TENSORFLOW}eager/execute.py", "quick_execute"),
    (f"{_TENSORFLOW}eager/execute.py", "execute_with_cancellation"),
    (f"{_TENSORFLOW}framework/ops.py", "raise_from_not_ok_status"),
    (f"{_TENSORFLOW}ops/gen_collective_ops.py", ""),
)
"""Functions in which TensorFlow's Python calls native code, and in which it raises that code's errors."""
_STRATEGY = f"{_TENSORFLOW}distribute/"
"""Functions in which a strategy waits for threads of its own, by a function in `_THREADING`."""
_THREADING = "/threading.py", "/multiprocessing/pool.py", f"{_TENSORFLOW}training/coordinator.py"

_SYNC, _REDUCERS = "/skyward_nb/runtime/sync.py", "/skyward_nb/pickling/reducers.py"
_WAIT = (_SYNC, "barrier"), (_REDUCERS, "_jax_array")
"""Functions of this package that wait by themselves; others in these files wait only in the torch functions that they call."""

_PACKAGES = (
    "/torch/distributed/",
    "/torch/nn/parallel/distributed.py",
    "/jax/experimental/multihost_utils.py",
    _SYNC,
    _REDUCERS,
    _TENSORFLOW,
    "/tf_keras/src/",
)
_BETWEEN = (
    "/torch/_ops.py",
    "/torch/_compile.py",
    "/torch/utils/",
    "/optree/",
    "/torch/distributed/c10d_logger.py",
    "/torch/nn/modules/module.py",
    "/jax/",
    "/jaxlib/",
    "/contextlib.py",
    "/tensorflow/python/util/traceback_utils.py",
    "/tf_keras/src/utils/traceback_utils.py",
    "/skyward_nb/plugins/",
    "/skyward_nb/node/mailbox.py",
)
"""What may lie between the frames of a collective without being one."""

_LAUNCHER = "/torch/distributed/launcher/api.py"
_LOGGING = "/torch/distributed/c10d_logger.py", "_get_msg_dict"
"""What torch asks of a group to log a collective that is over, or failed: it waits for nobody."""
_COMMUNICATION = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/nn/functional.py",
    *_PACKAGES[2:5],
)
_BACKWARD = "/torch/autograd/graph.py", "_engine_run_backward"
_COMPUTING = (
    ("/jax/_src/array.py", ("_value", "block_until_ready", "__array__")),
    ("/jax/_src/interpreters/pxla.py", ("__call__",)),
)
"""Functions in which JAX's Python calls native code to read an array, or to run a compiled function."""
_ALIKE = {
    (_SYNC, "barrier"): "sky.barrier",
    (_SYNC, "mesh"): "sky.mesh",
    (_REDUCERS, "_jax_array"): A_COMPUTATION_OF_JAX,
    ("/torch/nn/parallel/distributed.py", "__init__"): "DistributedDataParallel",
    ("/torch/nn/parallel/distributed.py", "forward"): "DistributedDataParallel.forward",
    ("/torch/distributed/_functional_collectives.py", "wait_tensor"): "wait_tensor",
    ("/tf_keras/src/engine/training.py", "fit"): "fit",
    ("/tf_keras/src/engine/training.py", "evaluate"): "evaluate",
    ("/tf_keras/src/engine/training.py", "predict"): "predict",
    (f"{_TENSORFLOW}distribute/distribute_lib.py", "run"): "strategy.run",
    (f"{_TENSORFLOW}distribute/distribute_lib.py", "reduce"): "strategy.reduce",
    (f"{_TENSORFLOW}distribute/input_lib.py", "__next__"): "the next batch",
    (f"{_TENSORFLOW}ops/variables.py", "__call__"): "tf.Variable",
    (f"{_TENSORFLOW}eager/polymorphic_function/polymorphic_function.py", "__call__"): "tf.function",
    (f"{_TENSORFLOW}eager/execute.py", "quick_execute"): "tf.function",
    (f"{_TENSORFLOW}eager/execute.py", "execute_with_cancellation"): "tf.function",
}
_ABORTED = re.compile(r"Collective ops is aborted|/tensorflow\.WorkerService/")
_LOST = re.compile(
    r"replaced by KeyboardInterrupt|gloo|nccl|connection|timed? ?out|socket|peer|store",
    re.IGNORECASE,
)
_JAX_LOST = re.compile(r"[A-Z_]+: Gloo ")
"""The beginnings of JAX's errors of gloo: a RuntimeError, or a ValueError of compiled code."""
_MOST = 200


def waits_in(frames: Iterable[NamedFrame]) -> str:
    """The collective that a thread with these frames, innermost first, waits in; or "".

    It is named by the outermost function of the communication package below the user's own code:
    `all_reduce`, `barrier`, `new_group`. What ends in autograd's engine waits in `backward`: a
    thread that is found there in a process with a group averages gradients, or computes; so is one
    that reads an array of JAX.
    """
    frames = list(frames)
    if any(file.endswith(_LAUNCHER) for file, _ in frames):
        return ""  # an elastic agent, which waits for its own workers
    if any(file.endswith(_LOGGING[0]) and function == _LOGGING[1] for file, function in frames):
        return ""
    rest = iter(frames)
    first = next(rest, ("", ""))
    native = ""
    if not first[0]:
        native = A_COMPUTATION_OF_JAX if first[1] == _COMPILED else _NATIVE.get(first[1], "")
        first = next(rest, ("", ""))
    if first[0].endswith(_BACKWARD[0]) and first[1] == _BACKWARD[1]:
        return "backward"
    if any(first[0].endswith(file) and first[1] in functions for file, functions in _COMPUTING):
        native = A_COMPUTATION_OF_JAX
    named: list[NamedFrame] = []
    within = _within([first, *rest])
    for file, function in within:
        if any(part in file for part in _PACKAGES) and not file.endswith(_BETWEEN):
            named.append((file, function))
        elif not any(part in file for part in _BETWEEN):
            break
    return native if all(map(_is_quick, named)) else _known_name(named)


def _is_quick(frame: NamedFrame) -> bool:
    """Whether a frame is one of this package that never waits."""
    ours = next((place for place in (_SYNC, _REDUCERS) if frame[0].endswith(place)), "")
    return bool(ours) and (ours, frame[1]) not in _WAIT


def _within(frames: list[NamedFrame]) -> list[NamedFrame]:
    """The frames from where a thread may wait for others; none of TensorFlow's where it does not.

    A thread in TensorFlow's native code computes or waits for others: nobody can tell. A strategy
    that waits for its own threads does as they do.
    """
    own = next((n for n, (file, _) in enumerate(frames) if not file.endswith(_THREADING)), 0)
    if own:
        return frames[own:] if _STRATEGY in frames[own][0] else []
    file, function = frames[0] if frames else ("", "")
    if _TENSORFLOW not in file:
        return frames
    for place, name in _TENSORFLOW_ENGINE:
        if file.endswith(place) and name in ("", function):
            return frames
    return []


def _known_name(named: list[NamedFrame]) -> str:
    """The outermost public function that communicates, else the outermost of all."""
    for file, function in reversed(named):
        for (place, name), alike in _ALIKE.items():
            if function == name and file.endswith(place):
                return alike
    public = [frame for frame in named if not frame[1].startswith(("_", "<"))]
    talking = [frame for frame in public if frame[0].endswith(_COMMUNICATION)]
    return (talking or public or named)[-1][1]


def frames_of_thread(frame: FrameType | None) -> Iterator[NamedFrame]:
    """The frames of a live thread, innermost first; before them the function it calls."""
    called = ""
    if frame is not None:
        called = called_at(frame.f_code, frame.f_lasti)
        found = frame.f_locals.get(called, frame.f_globals.get(called))
        called = _COMPILED if type(found).__name__ == _COMPILED else called
    return frames_below(called, frame)


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
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        frames = frames_of_error(error)
        if (name := waits_in(frames)) and (_only_waits(frames) or _was_aborted(error)):
            return name
        if name := _of_jax(error):
            return name
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return ""


def _only_waits(frames: list[NamedFrame]) -> bool:
    """Whether what these frames are in does nothing but wait; what is TensorFlow's may have computed."""
    return not any(_TENSORFLOW in file for file, _ in frames[:2])


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
