"""A front end's debugger, as JupyterLab's: requests on the control channel, events from iopub."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.session import Session
from kernels import Kernel

_PATIENCE = 60
_TELLS = "__import__('faulthandler').register({}, __import__('os').open({!r}, {}))"


class FrontEndDebugger:
    """One that is on, with channels of its own."""

    def __init__(self, kernel: Kernel, client_id: str = "jupyterlab") -> None:
        # Messages of two front ends are told apart by their sessions.
        self._client = kernel.manager.client(session=Session(key=kernel.manager.session.key))
        self._client.start_channels(shell=False, stdin=False, hb=False)
        self._seq = itertools.count(1)
        self._kernel = kernel
        self._stacks = Path(tempfile.mkdtemp()) / "stacks"
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        kernel.run_unseen(_TELLS.format(int(signal.SIGUSR1), str(self._stacks), how))
        try:
            self.ask("initialize", clientID=client_id, adapterID="python3")
            self.ask("attach")
        except AssertionError:
            # Else they would hold up the garbage collection of a later test.
            self._client.stop_channels()
            raise

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """What is answered."""
        content = {
            "type": "request",
            "seq": next(self._seq),
            "command": command,
            "arguments": arguments,
        }
        message = self._client.session.msg("debug_request", content)
        self._client.control_channel.send(message)
        while True:
            try:
                reply = self._client.get_control_msg(timeout=_PATIENCE)
            except Empty:
                raise AssertionError(f"{command} is not answered: {self._where()}") from None
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return reply["content"]

    def _where(self) -> str:
        """The stacks of the kernel."""
        os.kill(self._kernel.pid, signal.SIGUSR1)
        time.sleep(1)
        return self._stacks.read_text()

    def break_at(self, cell: str, *lines: int, **condition: str) -> str:
        """Set the breakpoints of a cell; returns the file that it is known by."""
        path = self.ask("dumpCell", code=cell)["body"]["sourcePath"]
        points = [{"line": line, **condition} for line in lines]
        self.ask("setBreakpoints", source={"path": path}, breakpoints=points)
        self.ask("configurationDone")
        return path

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            got = self._client.get_iopub_msg(timeout=_PATIENCE)
            if got["msg_type"] == "debug_event" and got["content"]["event"] == name:
                return got["content"]["body"]
        raise TimeoutError(name)

    def stopped_threads(self, at_least: int) -> list[int]:
        """The threads that stand, once there are so many; the one to look at is the first."""
        found = self.ask("debugInfo")["body"]["stoppedThreads"]
        return found if len(found) >= at_least else []

    def frames(self, thread: int) -> list[dict[str, Any]]:
        """The stack of a thread."""
        return self.ask("stackTrace", threadId=thread)["body"]["stackFrames"]

    def variables(self, frame: dict[str, Any], scope: str = "Locals") -> dict[str, str]:
        """Names and values of a frame."""
        scopes = self.ask("scopes", frameId=frame["id"])["body"]["scopes"]
        meant = next(each for each in scopes if each["name"] == scope)
        found = self.ask("variables", variablesReference=meant["variablesReference"])
        return {each["name"]: each["value"] for each in found["body"]["variables"]}

    def close(self) -> None:
        """Turn it off."""
        try:
            self.ask("disconnect", restart=False, terminateDebuggee=False)
        finally:
            self._client.stop_channels()
            shutil.rmtree(self._stacks.parent)


@contextmanager
def debugging(kernel: Kernel, client_id: str = "jupyterlab") -> Iterator[FrontEndDebugger]:
    """A front end's debugger that is on meanwhile."""
    debugger = FrontEndDebugger(kernel, client_id)
    try:
        yield debugger
    finally:
        debugger.close()
