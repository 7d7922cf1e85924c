"""PyTorch's own elastic agent on a rank: what `torchrun` is on one node.

How it lives among ranks. A run of `torchrun` has one rank for each node, and the agent runs in that rank's own
process, by the functions that the command `torchrun` itself calls. The pool sees one process to a node, which
prints, fails, is interrupted and dies as in any run. Workers are forked by the rank's forge, which has torch imported,
or, where a fork would not be the same, the agent's child processes (`runtime/worker_process`):

- what they print goes to the rank's pipes, and so to the picture, as what any child process prints;
- each is a session of its own, as PyTorch starts it, so a signal to the rank's process group does not reach it. An
  interrupt reaches the agent, which stops its workers as torchrun does at Ctrl-C, and ends the run; where a
  rank is killed, its forge inherits its workers and kills them (`node/forge`);
- restarts are the agents' own business: ranks live on, no generation begins.

A node's number is that of the pool; the head's address, and a free port, are given where the line has none. What
the agent changes in its process is put back after, since the rank lives on.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward_nb.compat import torch_elastic_private
from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.process_group import entered
from skyward_nb.runtime.worker_process import ready_modules, start_worker
from skyward_nb.system.addresses import family_of
from skyward_nb.system.other_accounts import why_not_trusted
from skyward_nb.words.info import COMPUTE_POOL, InstanceInfo
from skyward_nb.words.worker_failures import FailedWorker, WorkersFailed
from skyward_nb.workdir.working_folder import placed

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
_OPEN_STORES = (
    "the stores at which torchrun's agents and workers meet take connections of anybody, and read pickles "
    "from them, which run any code, as you"
)
_LOCAL = ("", "127.0.0.1", "localhost", "::1")


def run(
    options: dict[str, str],
    nodes: int,
    script: str,
    arguments: Sequence[str],
    folder: str,
    port: int,
    key: str = "",
    *,
    trusts: bool = False,
) -> None:
    """Be the agent of this rank's node, one of `nodes`, until its workers have ended.

    `port` is the head's, where the pool's own rendezvous port is in use; with a `key`, `folder` is in the
    copy of the script's folder on this machine. Raises `WorkersFailed`, and RuntimeError for what PyTorch does not
    take, or where other people may log in whom the pool's owner does not trust.
    """
    if not trusts and (refusal := why_not_trusted(_OPEN_STORES)):
        raise RuntimeError(refusal)
    info = instance_info()
    ready_modules()
    nodes = min(nodes, info.total_nodes)
    if info.worker or info.node >= nodes:
        return
    fewest, colon, _ = options.get("nnodes", "1").partition(":")
    if colon:
        options = options | {
            "nnodes": f"{fewest}:{nodes}"
        }  # more than there are would be waited for
    with _as_before(placed(key, folder)), _own_folder(info) as own:
        words = _words(options, info, nodes, port, str(own / "logs"))
        _launch(words, script, arguments, own)
    # Its store listens until it is let go.
    gc.collect()


@contextlib.contextmanager
def _own_folder(info: InstanceInfo) -> Generator[Path]:
    """A folder for logs and pipes of workers, which goes with the pool where this rank is killed."""
    folder = Path(os.environ["SKYWARD_POOL"], f"torchrun-{info.pool_rank}")
    shutil.rmtree(folder, ignore_errors=True)  # of a rank before this one
    for name in ("logs", "pipes"):
        (folder / name).mkdir(mode=0o700, parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _words(
    options: dict[str, str], info: InstanceInfo, nodes: int, port: int, logs: str
) -> list[str]:
    """The options of this node's agent: those of the line, and what it has no word of."""
    found = {"log-dir": logs} | options
    own = next(peer.address for peer in info.peers if peer.node == info.node)
    if "standalone" not in found:
        port = port if entered or not info.head_port else info.head_port
        found.setdefault("local-addr", own)
        if found.get("rdzv-backend", "static") == "static":
            found["node-rank"] = str(info.node)
            if found.get("rdzv-endpoint", "") == "":
                if found.get("master-addr", "") in _LOCAL:
                    found["master-addr"] = info.head_addr
                found.setdefault("master-port", str(port))
        elif "rdzv-endpoint" not in found:
            found["rdzv-endpoint"] = f"{info.head_addr}:{port}"
            conf = [each for each in found.get("rdzv-conf", "").split(",") if each.strip()]
            is_said = any(each.partition("=")[0].strip() == "is_host" for each in conf)
            if found["rdzv-backend"] == "c10d" and not is_said:
                # Of nodes at one address else the first one to come would be it, and all end with that.
                conf.append(f"is_host={str(info.node == 0).lower()}")
                found["rdzv-conf"] = ",".join(conf)
    if found.get("rdzv-id") in (None, "none"):
        found["rdzv-id"] = info.job_id or "none"
    if nodes > 1 and info.node == 0 and "rdzv-endpoint" not in options:
        _check_free(info.head_addr, int(found.get("master-port", port)))
    return [f"--{name}={value}" if value else f"--{name}" for name, value in found.items()]


def _check_free(address: str, port: int) -> None:
    """Raise RuntimeError where somebody listens at the port that the agents are to meet at."""
    with socket.socket(family_of(address)) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address, port))
        except OSError as error:
            raise RuntimeError(
                f"torchrun's agents cannot meet at {address}:{port} ({error.strerror}): "
                "name another port with --master-port=, or --rdzv-endpoint=HOST:PORT"
            ) from None


def _launch(words: list[str], script: str, arguments: Sequence[str], own: Path) -> None:
    """Run the agent; raises `WorkersFailed`, KeyboardInterrupt, RuntimeError."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    from skyward_nb.runtime.worker_output import LineLogs, WorkerOutput

    try:
        read: Any = parse_args([*words, script, *arguments])
        if read.standalone:
            read.rdzv_backend, read.rdzv_endpoint = "c10d", "localhost:0"
        config, command, rest = config_from_args(read)
    except SystemExit:  # argparse has said it
        raise RuntimeError(f"this node's PyTorch does not take {' '.join(words)}") from None
    except (ValueError, AssertionError) as error:
        raise RuntimeError(f"torchrun: {error}") from None
    _share_threads(config.nproc_per_node)
    output = WorkerOutput(own / "pipes")
    try:
        if read.logs_specs is None:
            config.logs_specs = LineLogs(read, output)
        with (
            torch_elastic_private.starting_workers(start_worker),
            torch_elastic_private.meeting_anew(),
        ):
            elastic_launch(config=config, entrypoint=command)(*rest)
    except ChildFailedError as error:
        raise WorkersFailed(_told(error.failures)) from None
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise
    finally:
        output.close()


def _share_threads(workers: int) -> None:
    """Divide the rank's share of the processors between its workers; torchrun's own default is one thread each."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        if os.environ.get(name, "").isdecimal():
            os.environ[name] = str(max(1, int(os.environ[name]) // workers))


def _told(failures: dict[int, ProcessFailure]) -> tuple[FailedWorker, ...]:
    """Failures by rank, the first in time first; workers that the agent has stopped because of them are left out.

    One that was killed before them was not killed by the agent: it may have taken too much memory.
    """
    own = {
        rank: each
        for rank, each in failures.items()
        if each.exitcode not in (-signal.SIGTERM, -signal.SIGKILL) or each.error_file != "<N/A>"
    }
    first = min((each.timestamp for each in own.values()), default=0)
    before = {
        rank: each
        for rank, each in failures.items()
        if each.exitcode == -signal.SIGKILL and each.timestamp <= first
    }
    chosen = {**own, **before} or failures
    return tuple(
        _worker(rank, chosen[rank])
        for rank in sorted(chosen, key=lambda r: (chosen[r].timestamp, r))
    )


def _worker(rank: int, failure: ProcessFailure) -> FailedWorker:
    message: Any = failure.message
    has_file = failure.error_file != "<N/A>"
    more: dict[str, Any] = message.get("extraInfo", {}) if isinstance(message, dict) else {}
    text = message.get("message", "") if isinstance(message, dict) else message if has_file else ""
    return FailedWorker(
        rank=rank,
        local_rank=failure.local_rank,
        exit_code=failure.exitcode,
        message=str(text),
        traceback=str(more.get("py_callstack", "")).rstrip(),
    )


@contextlib.contextmanager
def _as_before(folder: str) -> Generator[None]:
    """Put back what an agent changes in its process: environment, folder, signals' handlers, log levels."""
    environ = {**os.environ}
    handlers = {number: signal.getsignal(number) for number in _numbers()}
    before = os.open(".", os.O_RDONLY)
    try:
        # Workers find no pool: they are no ranks, and torchrun's variables have their place.
        os.environ.pop(COMPUTE_POOL, None)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.chdir(folder)
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(environ)
        with contextlib.suppress(OSError):
            os.fchdir(before)
        os.close(before)


def _numbers() -> list[signal.Signals]:
    return [signal.Signals[name] for name in _SIGNALS]
