"""The forge: imports once what ranks need, then forks them.

One thread, no device, no state of a run. It alone signals and reaps ranks, so no process id is
mistaken. It ends with its agent, after all processes of its ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path

from skyward_nb.node.forge_messages import (
    LARGEST,
    ForkRank,
    ModulesPreloaded,
    Order,
    PreloadModules,
    RankExited,
    RankForked,
    Word,
    send,
)
from skyward_nb.node.stack_pipe import STACK_SIGNAL
from skyward_nb.node.worker_forks import WorkerForks
from skyward_nb.system import processes
from skyward_nb.system.parenthood import die_with_parent, hang_together
from skyward_nb.system.second_look import SecondLook
from skyward_nb.words.decoding import from_msgpack
from skyward_nb.workdir.working_folder import FOLDERS, copies_root

_UNTIL_SEEN = 5.0
"""Seconds in which an agent sees that a rank has hung up, however busy the machine."""


def _signal_main_thread(pid: int, number: int) -> None:
    """Signal the main thread of a process (Linux), or where that is not to be had, the process."""
    try:
        ctypes.CDLL(None).tgkill(pid, pid, number)
    except AttributeError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Forge:
    """Forks, signals and reaps ranks as its agent orders."""

    def __init__(self, control: socket.socket, folder: Path, stores: tuple[Path, Path]) -> None:
        self._control = control
        self._folder = folder
        self._stores = stores
        self._ranks: set[int] = set()
        self._own: set[int] = set()
        """Children that imports started, ended last: ranks may need them."""
        self._workers = WorkerForks(folder, self._begin_child)
        self._tidying: dict[int, float] = {}
        """Orphans that remove what a rank left in shared memory, and until when they may."""

    def preload(self, modules: list[str]) -> None:
        """Import what ranks will need, on one thread, and make the shell they inherit."""
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        # Imports make no garbage worth looking for: a fifth of the time of importing torch.
        gc.disable()
        from skyward_nb.node import rank
        from skyward_nb.node.rank_shell import make_shell

        del rank
        self._shell = make_shell(self._folder / "ipython")
        self._import(modules)

    def _import(self, modules: Iterable[str]) -> None:
        """Import modules, and tell which could not be."""
        started = time.perf_counter()
        gc.disable()
        missing: dict[str, str] = {}
        for module in modules:
            variable, equals, value = module.partition("=")
            if equals:
                os.environ[variable] = value
                continue
            try:
                importlib.import_module(module)
            except Exception as error:  # noqa: BLE001 - a broken installation raises anything
                missing[module] = f"{type(error).__name__}: {error}"
        warnings.filterwarnings("ignore", message="To exit: use")
        gc.freeze()
        gc.enable()
        self._own = processes.children(os.getpid())
        send(self._control, ModulesPreloaded(time.perf_counter() - started, missing), [])

    def serve(self) -> None:
        """Obey until the agent hangs up, then end every process left."""
        wake_read, wake_write = socket.socketpair()
        wake_read.setblocking(False)
        wake_write.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)
        # From now on it sees by itself that its agent is gone, and ends what ranks started first.
        die_with_parent(0)
        self._private = [wake_read, wake_write, self._control]
        try:
            with SecondLook() as selector:
                selector.register(self._control, selectors.EVENT_READ)
                selector.register(wake_read, selectors.EVENT_READ)
                self._workers.listen(selector)
                self._serve(selector, wake_read)
        finally:
            self._end_all()

    def _serve(self, selector: selectors.BaseSelector, wake: socket.socket) -> None:
        while True:
            for key, _ in selector.select(self._patience()):
                if key.fileobj is wake:
                    with contextlib.suppress(BlockingIOError):
                        wake.recv(4096)
                    self._reap()
                elif key.fileobj is not self._control:
                    self._workers.hear(key.fileobj)
                elif not self._obey():
                    return
            self._end_late_tidiers()

    def _obey(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, LARGEST, 8)
        except ConnectionError:
            data, descriptors = b"", list[int]()
        if not data:
            return False
        order = from_msgpack(data, Order)
        if isinstance(order, ForkRank):
            self._fork(order, descriptors)
        elif isinstance(order, PreloadModules):
            self._import(order.modules)
        elif order.pid in self._ranks:
            # Itself first, and by its main thread: of two signals to a process, another thread
            # may take both, and a main thread that waits for a lock would not wake.
            _signal_main_thread(order.pid, order.number)
            # One that dies takes its group along when it is reaped, but for what tidies up after it.
            if order.group and order.number != signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(order.pid, order.number)
        return True

    def _fork(self, birth: ForkRank, descriptors: list[int]) -> None:
        told, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                # What it says is heard once the agent knows of it: its end of the pipe is closed then.
                os.close(tells)
                os.read(told, 1)
                os.close(told)
                self._become(birth, descriptors)
                code = 0
            except BaseException as error:
                # Into the agent's log: nobody else can be told any more.
                with contextlib.suppress(OSError):
                    traceback.print_exc()
                if isinstance(error, OSError) and error.errno == errno.EBADF:
                    # Its own code closed its connection. The agent sees that, ends it and says why:
                    # an exit code that came first would hide it.
                    time.sleep(_UNTIL_SEEN)
                raise
            finally:
                os._exit(code)
        for descriptor in (*descriptors, told):
            os.close(descriptor)
        self._ranks.add(pid)
        born = processes.known(pid)
        started = 0 if born is None else born.started
        try:
            self._say(RankForked(birth.place.generation, birth.place.rank, pid, started))
        finally:
            os.close(tells)

    def _become(self, birth: ForkRank, descriptors: list[int]) -> None:
        from skyward_nb.node.capture import out_of_the_way
        from skyward_nb.node.rank import Rank
        from skyward_nb.plugins.plugin_base import RankContext
        from skyward_nb.store.blobs import BlobStore
        from skyward_nb.system.login_environment import begin_as_logged_in

        os.setsid()
        hang_together()
        processes.name_this(f"sky-rank-{birth.place.rank}")
        self._leave_forge()
        begin_as_logged_in()
        os.environ.update(birth.env)
        if birth.cpus:
            os.sched_setaffinity(0, birth.cpus)
        _share_cores(birth)
        connection, stdout, stderr, control, stacks, *rendezvous = descriptors
        socket_of_head = rendezvous[0] if rendezvous else None
        shared = self._folder if birth.together else None
        place = RankContext(birth.place, birth.threads, socket_of_head, birth.memory, shared)
        rank = Rank(
            place,
            birth.plugins,
            socket.socket(fileno=out_of_the_way(connection)),
            (stdout, stderr),
            socket.socket(fileno=out_of_the_way(control)),
            out_of_the_way(stacks),
            self._shell,
            BlobStore(*self._stores),
        )
        rank.live()

    def _begin_child(self) -> None:
        """Make a forked process, in a session of its own, as one that was started anew."""
        from skyward_nb.system.login_environment import begin_as_logged_in

        die_with_parent(signal.SIGKILL)
        self._leave_forge()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(STACK_SIGNAL, signal.SIG_DFL)
        begin_as_logged_in()

    def _leave_forge(self) -> None:
        """Let go of what only the forge may have."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for private in self._private:
            private.close()
        self._workers.close()

    def _reap(self) -> None:
        """Reap ended children; a rank only after its group, which has its number until then."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # Processes that it left behind end with it; they are children of the forge now.
            left_some = self._end_orphans()
            if ended.si_pid in self._ranks:
                self._end_group(ended.si_pid, left_some=left_some)
            _, status = os.waitpid(ended.si_pid, 0)
            self._tidying.pop(ended.si_pid, None)
            self._own.discard(ended.si_pid)
            code = os.waitstatus_to_exitcode(status)
            self._workers.ended(ended.si_pid, code)
            if ended.si_pid in self._ranks:
                self._ranks.discard(ended.si_pid)
                self._say(RankExited(ended.si_pid, code))

    def _say(self, word: Word) -> None:
        """Tell the agent; that it is gone is noticed where orders come from."""
        with contextlib.suppress(ConnectionError):
            send(self._control, word, [])

    def _end_group(self, group: int, *, left_some: bool) -> None:
        """Kill the rest of the process group of a rank that ended, but what tidies up after others of it."""
        if left_some or self._tidying:
            processes.end_group(group)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def _end_orphans(self) -> bool:
        """Kill children that are no ranks: processes that ranks started. Those that tidy up get time for it.

        Whether there were any: what these had started comes here once they have ended.
        """
        known = self._ranks | self._own | self._workers.pids | set(self._tidying)
        orphans = processes.children(os.getpid()) - known
        for pid in orphans:
            if seconds := processes.tidies(pid):
                self._tidying[pid] = time.monotonic() + seconds
            else:
                processes.kill_child(pid)
        return bool(orphans)

    def _patience(self) -> float | None:
        """Seconds until a process that tidies up has had its time; None if there is none."""
        if not self._tidying:
            return None
        return max(0.0, min(self._tidying.values()) - time.monotonic())

    def _end_late_tidiers(self) -> None:
        now = time.monotonic()
        for pid in [pid for pid, until in self._tidying.items() if until <= now]:
            processes.kill_child(pid)
            del self._tidying[pid]
            self._own.add(pid)  # ended, and not given time again until it is reaped

    def _end_all(self) -> None:
        """End ranks, what they started, and the orphans that came to us, until none is left."""
        signal.set_wakeup_fd(-1)
        for private in self._private:
            private.close()
        self._workers.close()
        if self._own:
            # A tracker that an import started waits for the end of our side of its pipe.
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        for pid in self._ranks:
            processes.kill_child(pid)
        processes.end_children()


def _share_cores(birth: ForkRank) -> None:
    """Give numerical libraries this rank's share of the machine, loaded or not."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = birth.env.get(name, str(birth.threads))
    if birth.threads > 1 and "numpy" in sys.modules:
        import threadpoolctl

        threadpoolctl.threadpool_limits(birth.threads)


def serve(
    agent: int, control: socket.socket, folders: tuple[str, str, str], modules: list[str]
) -> None:
    """Be the forge of an agent, this process's parent, until it hangs up; then end all processes of its ranks."""
    processes.name_this("sky-forge")
    hang_together()
    if os.getppid() != agent:
        return  # it ended before it could take us along
    # Copies of working folders are there also for ranks whose `env=` names another home.
    os.environ.setdefault(FOLDERS, str(copies_root()))
    folder, store, spill = map(Path, folders)
    forge = Forge(control, folder, (store, spill))
    forge.preload(modules)
    forge.serve()


def main() -> None:
    """Be a forge in another Python than the agent's: its pid, a descriptor, the pool's folders, modules."""
    agent, descriptor, folder, store, spill, *modules = sys.argv[1:]
    sys.argv[1:] = []
    serve(int(agent), socket.socket(fileno=int(descriptor)), (folder, store, spill), modules)
    # Nothing is left to be orderly about, and unloading a framework takes its time.
    os._exit(0)


if __name__ == "__main__":
    # Under its importable name: ranks must not find the forge as their `__main__`.
    from skyward_nb.node.forge import main as importable_main

    importable_main()
