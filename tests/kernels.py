"""Real kernels for tests: cells in, outputs back, as a front end sees them."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_event_loop
from leaks import GO_ON, leaves_nothing
from traitlets.config import Config
from waiting import until

_HEAVY = ("jax", "keras", "sklearn", "tensorflow", "torch", "transformers")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_TO_THE_WAIT = 0.2
"""Seconds from what a rank says before it waits until it does."""
_TO_ITS_END = 60
"""Seconds that a kernel may take to end its pools, before it is ended without."""

MARKS = """
def here(word=""):
    import os, pathlib
    pathlib.Path({folder!r}, word + os.environ["RANK"]).touch()

def here_in(name):
    import sys, threading, time
    from skyward_nb.system.thread_frames import looking
    main = threading.main_thread().ident
    def look():
        names = ()
        while name not in names:
            time.sleep(0.02)
            with looking():
                frame, names = sys._current_frames()[main], []
                while frame is not None:
                    names.append(frame.f_code.co_name)
                    frame = frame.f_back
        here()
    threading.Thread(target=look, daemon=True).start()

def meet(*names):
    import pathlib, time
    while not all(pathlib.Path({folder!r}, str(name)).exists() for name in names):
        time.sleep(0.02)
"""


_REMEMBER = """
import gc as _gc, os as _os, sys as _sys
get_ipython().as_it_was = _os.getcwd(), dict(_os.environ), list(_sys.path)
_gc.freeze()
del _gc, _os, _sys
"""
_FITTED = """
%unload_ext skyward_nb
def _fit():
    import os
    os.chdir({folder!r})
    for name in {gone!r}:
        os.environ.pop(name, None)
    os.environ.update({set!r})
_fit()
del _fit
%load_ext skyward_nb
"""
# What is there before and after a test is frozen: `%reset` collects garbage, and need not look at it.
_WIPE = """
%unload_ext skyward_nb
%reset -f
def _as_it_was():
    import gc, os, sys
    shell = get_ipython()
    folder, env, path = shell.as_it_was
    os.chdir(folder)
    for name in {**os.environ, **env}:
        os.environ[name] = env.get(name, "")
        if name not in env:
            del os.environ[name]
    sys.path[:] = path
    history = shell.history_manager
    history.input_hist_parsed[:] = history.input_hist_raw[:] = [""]
    shell.execution_count = 1
    gc.freeze()
_as_it_was()
del _as_it_was
%load_ext skyward_nb
"""


class Marks:
    """Files by which ranks say where they are, to each other and to a test.

    In cells `here()` says that a rank is where it calls it, `here("again ")` that it is somewhere
    else, and `here_in(name)` that it has come into a function of this name, once it has; `meet(0, 1)`
    waits until these ranks have said so.
    """

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self._folder = folder
        assert kernel.run(MARKS.format(folder=str(folder))).status == "ok"

    def of(self, *ranks: int, word: str = "") -> Callable[[], bool]:
        """Whether all of these ranks have said so."""
        return lambda: all((self._folder / f"{word}{rank}").exists() for rank in ranks)

    def make(self, name: str) -> None:
        """Let those go on that wait for this one."""
        (self._folder / name).touch()


@dataclass
class Ran:
    """What one cell gave."""

    status: str
    streams: dict[str, str] = field(default_factory=dict)
    displays: list[dict[str, str]] = field(default_factory=list)
    result: str | None = None
    error: tuple[str, str, str] | None = None
    messages: int = 0
    bytes: int = 0
    others: list[dict[str, str]] = field(default_factory=list)
    """Displays of earlier cells that were updated meanwhile."""
    live: list[str] = field(default_factory=list)
    """What widgets showed while the cell ran, each text as it came."""
    shown: list[tuple[datetime, str]] = field(default_factory=list)
    """Texts of displays and widgets, and when the kernel sent each."""

    cleared: int = 0
    """How often its outputs were taken back."""

    handles: list[str] = field(default_factory=list)
    """What handles of runs say that this cell or an earlier one shows; the first is a cell's `result`, too."""

    own: set[str] = field(default_factory=set)
    expressions: dict[str, dict] = field(default_factory=dict)

    def hear(self, kind: str, content: dict) -> str:
        """Take a message; returns what a display or widget shows by it, as text."""
        self.messages += 1
        if kind in ("display_data", "update_display_data"):
            return self._show(content, is_new=kind == "display_data")
        if kind in ("comm_open", "comm_msg"):
            self.bytes += len(json.dumps(content))
            text = content["data"].get("state", {}).get("value", "")
            self.live += [text] if text else []
            return text
        if kind == "stream":
            name = content["name"]
            self.streams[name] = self.streams.get(name, "") + content["text"]
        elif kind == "execute_result":
            self.result = content["data"]["text/plain"]
        elif kind == "clear_output":
            self.cleared += 1
        elif kind == "error":
            text = _ANSI.sub("", "\n".join(content["traceback"]))
            self.error = (content["ename"], content["evalue"], text)
        return ""

    def _show(self, content: dict, *, is_new: bool) -> str:
        name = content.get("transient", {}).get("display_id", "")
        if (text := content["data"].get("text/plain", "")).startswith("<run "):
            self.handles.append(text)
            self.result = text if is_new else self.result
            return text
        if not is_new and name not in self.own:
            self.others.append(content["data"])
            return ""
        self.own.add(name)
        self.displays.append(content["data"])
        self.bytes += len(json.dumps(content))
        return content["data"].get("text/plain", "")

    @property
    def picture(self) -> str:
        """The text of the last state of the display."""
        return self.displays[-1]["text/plain"] if self.displays else ""

    @property
    def html(self) -> str:
        """The HTML of the last state of the display."""
        return self.displays[-1]["text/html"] if self.displays else ""

    @property
    def traceback(self) -> str:
        """The error as shown, without colours."""
        return self.error[2] if self.error else ""

    @property
    def stdout(self) -> str:
        return self.streams.get("stdout", "")

    @property
    def stderr(self) -> str:
        return self.streams.get("stderr", "")


class Kernel:
    """One running kernel and its client."""

    def __init__(self, manager: KernelManager, env: dict[str, str] | None = None) -> None:
        self.manager = manager
        self._env = dict(os.environ) if env is None else env
        self._connect()

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        assert self.run_unseen(_REMEMBER).status == "ok"

    def run_unseen(self, code: str) -> Ran:
        """Run code that is no cell: it has no number."""
        return self.finish(self.client.execute(code, silent=True))

    @property
    def pid(self) -> int:
        """Its process."""
        return self.manager.provisioner.pid

    def begin(self, code: str) -> str:
        """Send a cell; returns the message's id."""
        # Else what is sent soon after a cell that failed is aborted now and then.
        return self.client.execute(code, stop_on_error=False)

    def finish(
        self,
        message: str,
        timeout: float = 60,
        *,
        on_update=None,
        when_late: Callable[[], float] = lambda: 0.0,
    ) -> Ran:
        """Collect what a cell gives until it ends; `on_update` hears texts of displays and widgets.

        `when_late` is asked for how many seconds more it is waited, once its time is over.
        """
        ran = Ran("?")
        until = time.monotonic() + timeout
        while True:
            try:
                got = self.client.get_iopub_msg(timeout=max(0.1, until - time.monotonic()))
            except queue.Empty:
                if (more := when_late()) > 0:
                    until = time.monotonic() + more
                    continue
                said = f"{ran.picture}{ran.stdout}{ran.stderr}"[-500:]
                raise TimeoutError(f"the cell did not end in {timeout} s: {said}") from None
            if got["parent_header"].get("msg_id") != message:
                continue
            kind, content = got["msg_type"], got["content"]
            text = ran.hear(kind, content)
            if text:
                ran.shown.append((got["header"]["date"], text))
                if on_update is not None:
                    on_update(text)
            if kind == "status" and content["execution_state"] == "idle":
                break
        while (reply := self.client.get_shell_msg(timeout=timeout))["parent_header"].get(
            "msg_id"
        ) != message:
            """An answer to something else, such as what the kernel is."""
        ran.status = reply["content"]["status"]
        ran.expressions = reply["content"].get("user_expressions", {})
        return ran

    def run(self, code: str, timeout: float = 60, *, on_update=None) -> Ran:
        """Run a cell to its end."""
        return self.finish(self.begin(code), timeout, on_update=on_update)

    def stopped(
        self,
        code: str,
        word: str = "here",
        timeout: float = 60,
        *,
        before: Callable[[], None] = lambda: None,
    ) -> Ran:
        """Run a cell, and press the square button soon after a display says this word, and after `before`."""
        said = threading.Event()
        says = re.compile(rf"(?<!\w){re.escape(word)}")  # "anywhere" is in each style sheet

        def soon() -> bool:
            if said.is_set():
                before()
            return said.is_set()

        return self.pressed(
            code, soon, timeout=timeout, on_update=lambda text: says.search(text) and said.set()
        )

    def pressed(
        self, code: str, *whens: Callable[[], object], timeout: float = 60, on_update=None
    ) -> Ran:
        """Run a cell, and press the square button soon after each of these is true, one after another."""
        pressed, ended = [], threading.Event()

        def press() -> None:
            for when in whens:
                until(lambda when=when: ended.is_set() or when(), timeout)
                time.sleep(_TO_THE_WAIT)
                if ended.is_set():
                    return
                pressed.append(when)
                self.interrupt()

        thread = threading.Thread(target=press, daemon=True)
        thread.start()
        try:
            ran = self.run(code, timeout, on_update=on_update)
        finally:
            ended.set()
            thread.join()
        assert len(pressed) == len(whens), ran
        return ran

    def updates(self, seconds: float, last: str = "\0") -> list[str]:
        """Texts of displays that change while no cell runs, for so long, or up to one with `last`."""
        found: list[str] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (found and last in found[-1]):
            try:
                message = self.client.get_iopub_msg(timeout=0.1)
            except queue.Empty:
                continue
            if message["msg_type"] == "update_display_data":
                found.append(message["content"]["data"]["text/plain"])
        return found

    def restart(self, *, by_kill: bool = False) -> str:
        """Restart it as a front end does, or have it killed first; what the extension says then."""
        self.client.stop_channels()
        if by_kill:
            # Else it is interrupted first, and interrupts its run, if it is not killed at once.
            self.manager.provisioner.process.kill()
            until(lambda: not self.manager.is_alive())
        self.manager.restart_kernel(now=by_kill, env=self._env)
        self._connect()
        return self.run("%load_ext skyward_nb").stdout

    def interrupt(self) -> None:
        """Press the square button; from any thread."""
        with _event_loop_closed():
            self.manager.interrupt_kernel()

    def wipe(self) -> None:
        """Make it as it began: no pools, names, cells, settings; folder, environment, import path as they were.

        Modules that it has imported stay. One that does not answer is killed and comes again.
        """
        try:
            ran = self.run_unseen(_WIPE)
        except TimeoutError:
            self.restart(by_kill=True)
        else:
            assert ran.status == "ok", ran

    def fit(self, env: dict[str, str]) -> None:
        """Give it the folder of this process, and this environment."""
        more = {name: text for name, text in env.items() if self._env.get(name) != text}
        code = _FITTED.format(folder=str(Path.cwd()), gone={*self._env} - {*env}, set=more)
        for each in (code, _REMEMBER):
            ran = self.run_unseen(each)
            assert ran.status == "ok", ran
        self._env = env

    def begins_anew(self) -> bool:
        """Whether it is as it began, for other tests; one that has died or has imported much is not."""
        if not self.manager.is_alive():
            return False
        self.wipe()
        told = self.client.execute(
            "",
            silent=True,
            user_expressions={"much": f"set({_HEAVY}) & set(__import__('sys').modules)"},
        )
        return self.finish(told).expressions["much"]["data"]["text/plain"] == "set()"


@contextmanager
def _event_loop_closed() -> Iterator[None]:
    """Close the event loop that jupyter_client makes in another thread than the main one.

    It leaves that to the collector of garbage, which now and then closes the loop's socket before the loop: that is an
    error of whatever test runs then.
    """
    try:
        yield
    finally:
        if threading.current_thread() is not threading.main_thread():
            ensure_event_loop().close()


_running: list[Kernel] = []
_waiting: list[Kernel] = []
GO_ON.append(lambda: {f"child {each.pid}" for each in _running})


@contextmanager
def kernel(*, kernel_name: str = "python3", **env: str) -> Iterator[Kernel]:
    """A new kernel with the extension loaded; shut down as a front end does it."""
    running = _begin(kernel_name, {**os.environ, **env})
    try:
        yield running
    finally:
        _end(running)


def _by_files(folder: str) -> dict[str, str]:
    """A kernel's sockets are files: a port that is free now may be another's when the kernel takes it."""
    return {"transport": "ipc", "ip": f"{folder}/ipc", "connection_file": f"{folder}/kernel.json"}


@contextmanager
def by_files() -> Iterator[Config]:
    """A configuration for whoever starts one kernel within."""
    with tempfile.TemporaryDirectory(prefix="sky-kernel-") as folder:
        yield Config(KernelManager=_by_files(folder))


def _begin(kernel_name: str, env: dict[str, str]) -> Kernel:
    manager = KernelManager(
        kernel_name=kernel_name,
        shutdown_wait_time=_TO_ITS_END,
        **_by_files(tempfile.mkdtemp(prefix="sky-kernel-")),
    )
    manager.start_kernel(env=env)
    running = Kernel(manager, env)
    _running.append(running)
    try:
        assert running.run("%load_ext skyward_nb").status == "ok"
    except BaseException:
        _end(running)
        raise
    return running


def _end(running: Kernel) -> None:
    _running.remove(running)
    running.client.stop_channels()
    running.manager.shutdown_kernel()
    running.manager.cleanup_resources()
    shutil.rmtree(Path(running.manager.connection_file).parent)


@contextmanager
def _lent(**env: str) -> Iterator[Kernel]:
    """A kernel as it begins, but for modules that other tests have imported in it; no framework is among them."""
    env = {**os.environ, **env}
    if _waiting:
        running = _waiting.pop()
        running.fit(env)
    else:
        running = _begin("python3", env)
    try:
        yield running
    except BaseException:
        _end(running)
        raise
    if running.begins_anew():
        _waiting.append(running)
    else:
        _end(running)


def end_waiting() -> None:
    """End what waits for another test."""
    while _waiting:
        _end(_waiting.pop())


@contextmanager
def wiped(running: Kernel) -> Iterator[Kernel]:
    """A kernel that several tests use, for one of them: nothing is left of what was started in it."""
    with leaves_nothing():
        yield running
        running.wipe()


@contextmanager
def ready(*cells: str, timeout: float = 100, **env: str) -> Iterator[Kernel]:
    """A kernel in which these cells have run well; nothing is left of what was started in it.

    It is one that other tests may have had, unless it is to be another from its start: by its name, or
    by what Python reads when it starts.
    """
    is_another = any(name == "kernel_name" or name.startswith("PYTHON") for name in env)
    with leaves_nothing(), kernel(**env) if is_another else _lent(**env) as running:
        for each in cells:
            ran = running.run(each, timeout)
            assert ran.status == "ok", ran
        yield running
