"""A rank's debugpy, for the debugger of a front end: it stops the rank's threads at breakpoints, and looks at frames.

debugpy connects to a socket of this process on loopback, and proves by a token that it is this process's own.
Requests and answers are those of the Debug Adapter Protocol. Nothing is imported or traced before the first run
that has a `DebugPlan`, and between runs. How requests come here, and where answers go, it does not know.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import IPython

from skyward_nb.compat import debugpy_private
from skyward_nb.protocol.commands import CLIENTS_REQUESTS, DebugPlan, DebugRequest
from skyward_nb.protocol.events import DebugMessage, Event
from skyward_nb.system.peer_owner import other_users
from skyward_nb.words.info import LOOPBACK

_PATIENCE = 20.0
"""Seconds for debugpy to answer a request."""
_OURS = str(Path(__file__).parent.parent), str(Path(IPython.__file__).parent)
"""Folders of code that is never the user's."""
_PASSED_ON = ("stopped", "continued", "output")
_MISSING = (
    "the debugger does not stop rank {0}: debugpy is not installed there; %pip install debugpy, and "
    "%sky restart"
)
_TROUBLE = "the debugger does not stop rank {0}: {1}"
_NOT_AGAIN = "debugpy did not start there ({0}); %sky restart, and run the cell again"
_NOT_SET = "rank {0}: {1} Evaluate the value there: that tells why."
_AGAIN = 0.05
"""Seconds between tries to have debugpy go on."""

READY = json.dumps({"type": "event", "event": "initialized"})
"""Of each run the first message: its code begins now."""

Dap = dict[str, Any]
"""A message of the Debug Adapter Protocol, whose form is not ours."""


class RankDebugger:
    """debugpy in this process; `emit` takes what it says."""

    def __init__(self, rank: int, emit: Callable[[Event], None]) -> None:
        self._rank = rank
        self._emit = emit
        self._run: int | None = None
        self._line: _DebugLine | None = None
        self._fault = ""
        """Why debugpy did not start."""
        self._files: set[str] = set()
        """Where breakpoints are set."""

    def watching(self, run: int, plan: DebugPlan | None) -> AbstractContextManager[None]:
        """While inside, the main thread's code stops where the plan says."""
        return nullcontext() if plan is None else self._watching(run, plan)

    @contextmanager
    def _watching(self, run: int, plan: DebugPlan) -> Generator[None]:
        try:
            debugpy: Any = _debugpy()
            line = self._opened(debugpy, plan)
            self._run = run
            self._set_breakpoints(line, plan)
        except (ImportError, OSError, RuntimeError) as error:
            self._run = None
            words = _MISSING if isinstance(error, ImportError) else _TROUBLE
            print(words.format(self._rank, error), file=sys.stderr)
            self._emit(DebugMessage(run, self._rank, READY))
            yield
            return
        self._emit(DebugMessage(run, self._rank, READY))
        try:
            debugpy.trace_this_thread(True)
            yield
        finally:
            self._run = None
            debugpy.trace_this_thread(False)

    def obey(self, request: DebugRequest) -> None:
        """Pass on a request for the present run; from any thread."""
        line = self._line
        if request.run != self._run or line is None:
            return
        message: Dap = json.loads(request.text)
        if message["command"] == "disconnect":
            self._let_go(line)
            return
        self._note_files(message)
        line.send(_as_here(message))

    def _let_go(self, line: _DebugLine) -> None:
        for file in self._files:
            line.send(line.request("setBreakpoints", source={"path": file}, breakpoints=[]))
        line.send(line.request("setExceptionBreakpoints", filters=[]))
        line.send(line.request("continue", threadId=1))

    def _opened(self, debugpy: Any, plan: DebugPlan) -> _DebugLine:
        """The line to debugpy, which stays for the process's life: it cannot be begun twice.

        Raises RuntimeError where it was not begun, then or now.
        """
        if self._line is None and not self._fault:
            self._begin(debugpy, plan)
        if self._line is None:
            raise RuntimeError(_NOT_AGAIN.format(self._fault))
        return self._line

    def _begin(self, debugpy: Any, plan: DebugPlan) -> None:
        for thread in threading.enumerate():
            if thread.name.startswith("skyward-"):
                _leave_alone(thread)
        try:
            self._line = _DebugLine.opened(debugpy, plan, self._heard)
        except (OSError, RuntimeError) as error:
            self._fault = str(error)
            return
        debugpy_private.take_for_files(self._files.__contains__)
        debugpy_private.refuse_values()
        debugpy_private.stop_at_no_exception_of(*_OURS)
        os.register_at_fork(after_in_child=lambda: _end_in_child(debugpy))

    def _set_breakpoints(self, line: _DebugLine, plan: DebugPlan) -> None:
        """Those of the plan, and no others."""
        before = set(self._files)
        self._files.clear()
        asked: list[Dap] = [json.loads(text) for text in plan.requests]
        for message in asked:
            self._note_files(message)
        gone = [
            line.request("setBreakpoints", source={"path": file}, breakpoints=[])
            for file in before - self._files
        ]
        if not any(each["command"] == "setExceptionBreakpoints" for each in asked):
            gone.append(line.request("setExceptionBreakpoints", filters=[]))
        for message in [*gone, *asked]:
            line.ask(line.request(message["command"], **_as_here(message)["arguments"]))
        # A run that was interrupted where it stood, or in a step, has left it so.
        line.ask(line.request("continue", threadId=1))

    def _note_files(self, message: Dap) -> None:
        if message["command"] == "setBreakpoints":
            self._files.add(message["arguments"]["source"]["path"])

    def _heard(self, message: Dap) -> None:
        """Pass on what debugpy says to a front end."""
        run = self._run
        if run is None:
            return
        if message["type"] == "event":
            if message["event"] not in _PASSED_ON:
                return
            if message["event"] == "output" and message["body"].get("category") == "telemetry":
                return
        elif message.get("request_seq", 0) < CLIENTS_REQUESTS:
            return
        if message.get("command") == "stackTrace" and message.get("success"):
            frames = message["body"]["stackFrames"]
            message["body"]["stackFrames"] = kept = [each for each in frames if not _is_ours(each)]
            message["body"]["totalFrames"] = len(kept)
        if message.get("command") == "setVariable" and not message.get("success"):
            message["message"] = _NOT_SET.format(self._rank, message.get("message", ""))
        self._emit(DebugMessage(run, self._rank, json.dumps(message)))


class _DebugLine:
    """The connection to debugpy: whole messages in both directions."""

    def __init__(self, connection: socket.socket, heard: Callable[[Dap], None]) -> None:
        self._socket = connection
        self._file = connection.makefile("rb")
        self._heard = heard
        self._seq = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: dict[int, Dap] = {}
        self._is_ready = False
        self._came = threading.Condition()

    @classmethod
    def opened(cls, debugpy: Any, plan: DebugPlan, heard: Callable[[Dap], None]) -> _DebugLine:
        """Have debugpy connect to a socket of our own; raises OSError, or RuntimeError without an answer.

        Nothing of debugpy goes on then.
        """
        token = secrets.token_hex(32)
        found: list[_DebugLine] = []
        faults: list[Exception] = []
        has_returned = threading.Event()
        debugpy.configure(subProcess=False)
        with ExitStack() as begun, socket.create_server((LOOPBACK, 0)) as listener:
            begun.callback(debugpy_private.give_up)
            listener.settimeout(_PATIENCE)

            def accept() -> None:
                try:
                    while not found:
                        connection = listener.accept()[0]
                        begun.callback(_hang_up, connection)
                        connection.settimeout(None)
                        if not other_users([connection]):
                            found.extend(cls._greeted(connection, token, plan, heard))
                except (OSError, RuntimeError) as error:
                    faults.append(error)
                finally:
                    # Else it would wait for ever to be told that all is set up.
                    while not found and not has_returned.wait(_AGAIN):
                        debugpy_private.end_wait()

            waiting = threading.Thread(target=accept, name="skyward-debug-accept", daemon=True)
            _leave_alone(waiting)
            waiting.start()
            try:
                # It goes on once it is told that all is set up.
                debugpy.connect(listener.getsockname(), access_token=token)
            finally:
                has_returned.set()
            waiting.join()
            if found:
                begun.pop_all()
                return found[0]
        raise faults[0] if faults else RuntimeError("debugpy did not connect")

    @classmethod
    def _greeted(
        cls, connection: socket.socket, token: str, plan: DebugPlan, heard: Callable[[Dap], None]
    ) -> tuple[_DebugLine, ...]:
        """The line, set up, if it is debugpy of this process that connected."""
        line = cls(connection, heard)
        serving = threading.Thread(target=line._serve, name="skyward-debug", daemon=True)
        _leave_alone(serving)
        serving.start()
        said = line.ask(line.request("pydevdAuthorize", debugServerAccessToken=None))
        if said.get("body", {}).get("clientAccessToken") != token:
            _hang_up(connection)
            return ()
        line._attach(only_users=plan.only_users)
        return (line,)

    def _attach(self, *, only_users: bool) -> None:
        """Begin as a front end does; raises RuntimeError."""
        self.ask(
            self.request(
                "initialize",
                clientID="skyward_nb",
                adapterID="python",
                pathFormat="path",
                linesStartAt1=True,
                columnsStartAt1=True,
                supportsVariableType=True,
            )
        )
        rules = [{"path": path, "include": False} for path in _OURS]
        self.ask(
            self.request(
                "attach",
                justMyCode=only_users,
                debugOptions=[] if only_users else ["DebugStdLib"],
                rules=rules,
                # Each thread by itself: those that bring output and interrupts must go on.
                stopAllThreadsOnSuspend=False,
                steppingResumesAllThreads=False,
                resolveSymlinks=False,
            )
        )
        self.ask(self.request("configurationDone"))

    def request(self, command: str, **arguments: object) -> Dap:
        """A request of our own."""
        return {
            "type": "request",
            "seq": next(self._seq),
            "command": command,
            "arguments": arguments,
        }

    def send(self, message: Dap) -> None:
        """Send a message; from any thread."""
        body = json.dumps(message).encode()
        with self._lock:
            self._socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def ask(self, message: Dap) -> Dap:
        """The answer to a request of our own; raises RuntimeError without one."""
        self.send(message)
        with self._came:
            if not self._came.wait_for(lambda: message["seq"] in self._answers, _PATIENCE):
                raise RuntimeError(f"debugpy did not answer {message['command']}")
            return self._answers.pop(message["seq"])

    def _serve(self) -> None:
        with suppress(OSError, ValueError):
            while (message := self._read()) is not None:
                if message["type"] == "response" and message["request_seq"] < CLIENTS_REQUESTS:
                    with self._came:
                        self._answers[message["request_seq"]] = message
                        self._came.notify_all()
                self._heard(message)

    def _read(self) -> Dap | None:
        """The next message; None at the end. Raises ValueError for what is none."""
        size = -1
        while (line := self._file.readline()).strip():
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                size = int(value)
        return json.loads(self._file.read(size)) if line and size >= 0 else None


def _debugpy() -> Any:
    # Else it warns in the user's output that modules of Python are frozen, which is no matter here.
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    return importlib.import_module("debugpy")


def _hang_up(connection: socket.socket) -> None:
    """Close a connection, also where a thread reads from it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _leave_alone(thread: threading.Thread) -> None:
    """Have debugpy trace a thread never, and tell of it nowhere (attributes that pydevd documents)."""
    vars(thread).update(pydev_do_not_trace=True, is_pydev_daemon_thread=True)


def _end_in_child(debugpy: Any) -> None:
    """In a process that the user's code forked nobody could say that it is to go on."""
    threading.settrace(None)  # type: ignore[arg-type] - as its documentation has it
    debugpy.trace_this_thread(False)


def _as_here(message: Dap) -> Dap:
    """A request of a front end as it is meant here, where no exception is ever uncaught: it leaves the user's code."""
    if message["command"] != "setExceptionBreakpoints":
        return message
    asked: Dap = message["arguments"]
    named = {"uncaught": "userUnhandled"}
    filters = list(dict.fromkeys(named.get(each, each) for each in asked.get("filters", ())))
    return {**message, "arguments": {**asked, "filters": filters}}


def _is_ours(frame: Dap) -> bool:
    path = (frame.get("source") or {}).get("path") or ""
    return path.startswith((*_OURS, "<frozen "))
