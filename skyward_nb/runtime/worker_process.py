"""A worker of torchrun that a forge forks: how it is asked for, and what it is.

PyTorch's agent starts each worker as `python -u script`, which imports torch anew. A forge has imported it, and
forks the worker instead, as it forks ranks: with the environment, folder and files that the agent gives it. What a fork
would not make the same (other programs than this Python, variables that are read by imports) is started as PyTorch
does it.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skyward_nb.runtime import first_step
from skyward_nb.runtime.script_runner import run
from skyward_nb.system.distributions import distribution_of, lacked_module
from skyward_nb.system.traceback_filter import without_frames
from skyward_nb.words.decoding import from_msgpack

SOCKET = "workers.sock"
"""The socket of a forge, in the folder of its pool."""
MODULES = (*first_step.MODULES, "torch.distributed.run")
"""What an agent imports, and a worker up to the end of its first step."""
_POOL = "SKYWARD_POOL"
_READ_BY_IMPORTS = (
    *("PYTHON", "LD_", "KMP_"),
    *("TORCH_", "PYTORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_"),
)
_READ_LATER = (
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "KMP_DUPLICATE_LIB_OK",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)
"""Set by agents, by threadpoolctl in a rank that has torch loaded, and by compiled code, whatever the forge has."""
_PAUSE = 0.02


class ReadyModules(msgspec.Struct, frozen=True, tag=True):
    """Import `MODULES`, if that is not done; nothing is answered."""


class ForkWorker(msgspec.Struct, frozen=True, tag=True):
    """Fork a worker that runs `words` of Python, such as `("-m", "train")`; it ends with this connection.

    It writes to the files `stdout` and `stderr`, works in `folder` on these `cpus`, and its code holds at most
    `memory` bytes.
    """

    words: tuple[str, ...]
    env: dict[str, str]
    folder: str
    stdout: str
    stderr: str
    cpus: tuple[int, ...]
    memory: tuple[int, int]


class WorkerForked(msgspec.Struct, frozen=True, tag=True):
    """Its process."""

    pid: int


class WorkerRefused(msgspec.Struct, frozen=True, tag=True):
    """It is better started as PyTorch does it, for this reason."""

    why: str


class WorkerEnded(msgspec.Struct, frozen=True, tag=True):
    """It ended with this code, or minus the signal that killed it."""

    code: int


WorkerOrder = ReadyModules | ForkWorker
WorkerWord = WorkerForked | WorkerRefused | WorkerEnded
LARGEST = 1 << 20


# ── asked for ───────────────────────────────────────────────────────────────────────────


class ForkedWorker:
    """A worker that a forge has forked, as PyTorch's agent knows processes (`subprocess.Popen`)."""

    def __init__(self, args: Sequence[str], pid: int, line: socket.socket) -> None:
        self.args: Sequence[str] = args
        self.pid: int = pid
        self.returncode: int | None = None
        self._line = line

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            try:
                data = self._line.recv(LARGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except ConnectionError:
                data = b""
            # A forge that is gone has taken its children along.
            ended = from_msgpack(data, WorkerEnded) if data else None
            self.returncode = ended.code if ended else -signal.SIGKILL
            self._line.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises `subprocess.TimeoutExpired`."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
            time.sleep(_PAUSE)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it, if it has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def ready_modules() -> None:
    """Have the forge import what workers need, while this process does the same."""
    with contextlib.suppress(OSError), _connected() as line:
        line.send(msgspec.msgpack.encode(ReadyModules()))


def start_worker(
    args: Sequence[str], env: Mapping[str, str], stdout: Any, stderr: Any
) -> ForkedWorker | None:
    """A worker that is forked; None where it is to be started as PyTorch does it."""
    program, *words = args
    if program != sys.executable or words[:1] != ["-u"] or not (stdout and stderr):
        return None
    order = ForkWorker(
        tuple(words[1:]),
        dict(env),
        str(Path.cwd()),
        stdout.name,
        stderr.name,
        tuple(sorted(os.sched_getaffinity(0))),
        resource.getrlimit(resource.RLIMIT_DATA),
    )
    line: socket.socket | None = None
    try:
        line = _connected()
        line.send(msgspec.msgpack.encode(order))
        said = from_msgpack(line.recv(LARGEST), WorkerForked | WorkerRefused)
    except (OSError, msgspec.MsgspecError):
        said = WorkerRefused("the forge does not answer")
    if isinstance(said, WorkerForked) and line is not None:
        return ForkedWorker(args, said.pid, line)
    if line is not None:
        line.close()
    return None


def _connected() -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        line.connect(os.path.join(os.environ[_POOL], SOCKET))  # noqa: PTH118
    except (OSError, KeyError) as error:
        line.close()
        raise OSError("there is no forge here") from error
    return line


# ── forked ──────────────────────────────────────────────────────────────────────────────


def why_not(order: ForkWorker, own: Mapping[str, str]) -> str:
    """Why a worker would not be the same as one that imports anew, given the forge's environment; "" if it is."""
    for name in {*order.env, *own}:
        is_read = name.startswith(_READ_BY_IMPORTS) and name not in _READ_LATER
        if is_read and order.env.get(name) != own.get(name):
            return f"{name} is read by imports"
    if order.words[:1] != ("-m",) and order.words[0].startswith("-"):
        return f"{order.words[0]} is an option of Python"
    return ""


def be_worker(order: ForkWorker) -> int:
    """Be a worker in a process of its own; its exit code, or minus the signal that ends it."""
    os.environ.clear()
    os.environ.update(order.env)
    os.sched_setaffinity(0, order.cpus)
    resource.setrlimit(resource.RLIMIT_DATA, order.memory)
    for path, number in ((order.stdout, 1), (order.stderr, 2)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdout, sys.stderr = _unbuffered(1, "strict"), _unbuffered(2, "backslashreplace")
    os.chdir(order.folder)
    _begin_as_new()
    is_module = order.words[0] == "-m"
    name, *arguments = order.words[1:] if is_module else order.words
    try:
        if is_module:
            run(name, arguments, order.folder, name)
        else:
            run(os.path.abspath(name), arguments, order.folder, called=name)  # noqa: PTH100
    except SystemExit as end:
        return end.code & 0xFF if isinstance(end.code, int) else 1  # as the system has it
    except KeyboardInterrupt as interrupt:
        _show(interrupt)
        return -signal.SIGINT
    except BaseException as error:  # noqa: BLE001 - as Python does at its top
        _show(error)
        return 1
    return 0


def flush() -> None:
    """Write what streams still hold."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _unbuffered(number: int, errors: str) -> io.TextIOWrapper:
    raw = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115 - for the process's life
    return io.TextIOWrapper(raw, "utf-8", errors, write_through=True)


def _begin_as_new() -> None:
    """Numbers by chance, and threads of libraries, as in a process that begins."""
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(threads))


def _show(error: BaseException) -> None:
    """Print a traceback as Python does, from the script's first frame on."""
    own = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    trace = without_frames(
        error.__traceback__,
        lambda code: code.co_filename.startswith((own, "<frozen runpy>")),
    )
    traceback.print_exception(type(error), error, trace)
    if isinstance(error, ModuleNotFoundError) and (module := lacked_module(str(error))):
        package = distribution_of(module)
        print(
            f"This Python lacks {module}: add pip={package} to the line, or with provider=local: pip install {package}",
            file=sys.stderr,
        )
