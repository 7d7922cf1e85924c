"""Between a front end's debugger and those of ranks: one thread for each rank that stands.

The front end speaks with the kernel (Debug Adapter Protocol). Breakpoints are noted for the next run, questions
about ranks go to them, and what they say comes back through the thread that listens to their pool. Front ends
that show one thread (JupyterLab) get the frames of all ranks that stand in one list.

Steps are those of all ranks that stand: one that steps over a collective alone would wait for the others.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterable

from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.commands import CLIENTS_REQUESTS, DebugPlan, DebugRequest
from skyward_nb.protocol.events import DebugMessage
from skyward_nb.reports.kernel_debugger import KernelDebugger
from skyward_nb.reports.present_debugger import let_go
from skyward_nb.reports.rank_threads import (
    NUMBERS,
    Dap,
    RankKey,
    RankThreads,
    Standing,
    read_bundle,
    read_message,
)
from skyward_nb.words.bundles import boxed

_ANSWER = 10.0
"""Seconds that a rank has for an answer."""
_LARGEST = 50_000
"""Characters of a request: it travels as one packet to a rank's control thread."""
_MOST_STACKS = 32
_ASKED_OF_RANKS = {
    "continue", "next", "stepIn", "stepOut", "stackTrace", "scopes", "variables", "evaluate",
    "setVariable", "setExpression", "exceptionInfo", "completions", "stepInTargets", "gotoTargets", "goto",
    "richInspectVariables", "copyToGlobals",
}  # fmt: skip
_STEPS = ("next", "stepIn", "stepOut")
_SETS = ("setBreakpoints", "setExceptionBreakpoints", "setFunctionBreakpoints")
_LAB = "jupyterlab"
_PAST = "that rank has gone on since"
_NO_RUN = "rank {} runs no code now"
_NO_ANSWER = "the answer of rank {}'s debugger cannot be read"
_TOO_LONG = f"ranks are asked at most {_LARGEST:,} characters at once"
_NOT_NOW = f"from the next run on: {_TOO_LONG}, and these breakpoints have more"
_NO_PAUSE = (
    "Pause does not work on ranks. Set a breakpoint instead: ranks that run stop there, if the debugger was on "
    "when the cell began."
)


class DebugBridge:
    """The debuggers of this kernel's ranks, for one front end at a time."""

    def __init__(self, own: KernelDebugger) -> None:
        self._own = own
        self._lock = threading.RLock()
        self._threads = RankThreads()
        self._pools: dict[str, Pool] = {}
        self._runs: dict[RankKey, int] = {}
        """The run of each rank whose debugger is on."""
        self._starting: set[RankKey] = set()
        """Ranks whose debugger is being made ready, before any of their code runs."""
        self._seq = itertools.count(CLIENTS_REQUESTS)
        self._awaited: dict[int, asyncio.Future[Dap]] = {}
        self._sets: dict[str, Dap] = {}
        """Requests that set breakpoints, the last for each file and kind."""
        self._client = _LAB
        self.is_on: bool = own.is_started
        """Whether a front end's debugger is on."""
        for path, points in own.breakpoint_list.items():
            asked = {"source": {"path": path}, "breakpoints": points}
            self._note_set({"command": "setBreakpoints", "arguments": asked})

    # ── runs ────────────────────────────────────────────────────────────────────────────

    def plan(self) -> DebugPlan | None:
        """What the next run's ranks are to stop at; None while no debugger is on."""
        with self._lock:
            if not self.is_on:
                return None
            texts = tuple(json.dumps(each) for each in self._sets.values())
        return DebugPlan(texts, self._own.just_my_code)

    def began(self, pool: Pool, run: int, ranks: Iterable[int]) -> None:
        """A run with a plan has begun."""
        with self._lock:
            self._pools[pool.pool_id] = pool
            keys = [RankKey(pool.pool_id, rank) for rank in ranks]
            self._runs |= dict.fromkeys(keys, run)
            self._starting.update(keys)

    def heard(self, pool: Pool, message: DebugMessage) -> None:
        """A rank's debugger says something; from the thread that listens to its pool."""
        key, said = RankKey(pool.pool_id, message.rank), read_message(message.text)
        with self._lock:
            is_known = self._runs.get(key) == message.run
            if said is None or not is_known:
                let_go(pool, message.run, (message.rank,))
                if is_known:
                    self._forget(key)
            elif said["type"] == "response":
                self._answered(said)
            elif said["event"] == "initialized":
                self._starting.discard(key)
            elif said["event"] == "stopped":
                self._stopped(key, message.run, said["body"])
            elif said["event"] == "output":
                self._publish("output", said["body"])

    def over(self, pool: Pool, run: int, ranks: Iterable[int]) -> None:
        """These ranks have ended this run, or are lost."""
        with self._lock:
            for rank in ranks:
                key = RankKey(pool.pool_id, rank)
                if self._runs.get(key) == run:
                    self._forget(key)

    def let_go(self, pool: Pool, run: int) -> None:
        """Have all ranks of a run go on, and stop no more in it: it is to end."""
        with self._lock:
            keys = [k for k, each in self._runs.items() if k.pool == pool.pool_id and each == run]
            if keys:
                ranks = tuple(key.rank for key in keys)
                let_go(pool, run, ranks)
            for key in keys:
                self._forget(key)

    def _forget(self, key: RankKey) -> None:
        del self._runs[key]
        self._starting.discard(key)
        self._moved_on(key)
        self._threads.forget(key)
        if all(other.pool != key.pool for other in self._runs):
            self._pools.pop(key.pool, None)

    def takes_no_time(self, pool: Pool) -> bool:
        """Whether the clock of a pool's runs stands still: a rank of one stands, or is being made ready."""
        with self._lock:
            return any(
                key.pool == pool.pool_id for key in (*self._starting, *self._threads.standing)
            )

    def standing(self, pool: Pool, run: int) -> dict[int, str]:
        """The ranks of a run that stand, with where, in words."""
        with self._lock:
            return {
                key.rank: where.words
                for key, where in self._threads.standing.items()
                if key.pool == pool.pool_id and where.run == run
            }

    def _stopped(self, key: RankKey, run: int, body: Dap) -> None:
        where = Standing(run, body["threadId"], body.get("reason", "breakpoint"))
        self._threads.stands(key, where)
        focus = self._threads.focus
        if self._client != _LAB or key == focus:
            self._tell_stopped(key, body)
        elif focus in self._threads.standing:
            assert focus is not None
            self._tell_stopped(focus, {"reason": self._threads.standing[focus].reason})

    def _tell_stopped(self, key: RankKey, body: Dap) -> None:
        number = self._threads.number(key, self._threads.standing[key].thread)
        self._publish("stopped", {**body, "threadId": number, "allThreadsStopped": False})

    def _moved_on(self, key: RankKey) -> None:
        """A rank does not stand any more, and does not come back; another one is looked at."""
        number = self._threads.standing.get(key)
        if number is not None:
            told = self._threads.number(key, number.thread)
            self._threads.goes_on(key)
            self._publish("continued", {"threadId": told, "allThreadsContinued": False})
        if self._threads.focus == key:
            self._threads.lets_focus_go()
            if self._threads.focus is not None:
                where = self._threads.standing[self._threads.focus]
                self._tell_stopped(self._threads.focus, {"reason": where.reason})

    def _publish(self, event: str, body: Dap) -> None:
        self._own.event_callback(
            {"type": "event", "seq": next(self._seq), "event": event, "body": body}
        )

    # ── requests of the front end, on the kernel's control thread ───────────────────────

    async def answer(self, request: Dap, kernels: Callable[[Dap], Awaitable[Dap]]) -> Dap:
        """Answer a request of the front end, or have the kernel's own debugger answer it."""
        command, asked = request.get("command"), request.get("arguments") or {}
        if command in _ASKED_OF_RANKS and (meant := self._meant(asked)) is not None:
            try:
                return await self._of_ranks(request, *meant)
            except (KeyError, TypeError, AttributeError, RecursionError):
                words = _NO_ANSWER.format(meant[0].rank)
                return _for(request, {"success": False, "message": words, "body": {}})
        if command in _ASKED_OF_RANKS and self._is_past(asked):
            return _for(request, {"success": False, "message": _PAST, "body": {}})
        if command == "pause" and self._runs and not self._own.stopped_threads:
            # The kernel's main thread listens to ranks: where it stood, nobody would hear them.
            return _for(request, {"success": False, "message": _NO_PAUSE})
        if command == "disconnect":
            self._end()
        reply = await kernels(request)
        if command == "initialize" and reply.get("success"):
            with self._lock:
                self.is_on, self._client = True, str(asked.get("clientID", ""))
        elif command in _SETS and not self._note_set(request):
            reply = _for(request, {**reply, "success": False, "message": _NOT_NOW})
        elif command == "debugInfo":
            with self._lock:
                numbers = [self._thread_of(key) for key in self._threads.in_order()]
            reply["body"]["stoppedThreads"] += numbers
        elif command == "threads" and reply.get("success"):
            reply["body"]["threads"] += self._all_threads()
        return reply

    def _thread_of(self, key: RankKey) -> int:
        return self._threads.number(key, self._threads.standing[key].thread)

    def _all_threads(self) -> list[Dap]:
        with self._lock:
            return [
                {"id": self._thread_of(key), "name": f"rank {key.rank}"}
                for key in sorted(self._threads.standing)
            ]

    def _is_past(self, asked: Dap) -> bool:
        with self._lock:
            return self._threads.is_past(asked)

    def _meant(self, asked: Dap) -> tuple[RankKey, int] | None:
        """The rank that a request is about, and its own number; None: the kernel."""
        with self._lock:
            for name in NUMBERS:
                if (meant := self._threads.meant(asked.get(name))) is not None:
                    return meant
            # JupyterLab until 4.5 speaks of thread 1 alone.
            focus = self._threads.focus
            if "threadId" in asked and focus is not None and not self._own.stopped_threads:
                where = self._threads.standing.get(focus)
                return None if where is None else (focus, where.thread)
        return None

    async def _of_ranks(self, request: Dap, key: RankKey, theirs: int) -> Dap:
        command, asked = request["command"], dict(request["arguments"])
        for name in NUMBERS:
            if (meant := self._threads.meant(asked.get(name))) is not None:
                asked[name] = meant[1]
            elif name == "threadId" and name in asked:
                asked[name] = theirs
        if command == "continue":
            return self._continue(request)
        if command in _STEPS:
            return self._step(request, asked)
        if command == "stackTrace" and self._client == _LAB:
            return await self._stacks(request)
        if command == "richInspectVariables":
            return await self._rich(request, key, asked)
        if command == "copyToGlobals":
            return await self._copy(request, key, asked)
        reply = await self._ask(key, command, asked)
        if command == "variables" and reply.get("success"):
            found: list[Dap] = reply["body"]["variables"]
            reply["body"]["variables"] = [
                each for each in found if self._own.accept_variable(each["name"])
            ]
        return _for(request, self._threads.renumbered(key, reply))

    def _continue(self, request: Dap) -> Dap:
        """All ranks that stand go on: those that wait for each other must."""
        with self._lock:
            for key in self._threads.in_order():
                where = self._threads.standing[key]
                number = self._thread_of(key)
                self._send(key, "continue", {"threadId": where.thread})
                self._threads.goes_on(key)
                self._publish("continued", {"threadId": number, "allThreadsContinued": True})
            self._threads.focus = None
        return _for(request, {"success": True, "body": {"allThreadsContinued": True}})

    def _step(self, request: Dap, asked: Dap) -> Dap:
        with self._lock:
            for key in self._threads.in_order():
                where = self._threads.standing[key]
                self._send(key, request["command"], {**asked, "threadId": where.thread})
                self._threads.goes_on(key)
        return _for(request, {"success": True})

    async def _stacks(self, request: Dap) -> Dap:
        """The frames of all ranks that stand, those of the one that is looked at first."""
        with self._lock:
            keys = self._threads.in_order()[:_MOST_STACKS]
            wheres = {key: self._threads.standing[key] for key in keys}
        asked = [self._ask(k, "stackTrace", {"threadId": w.thread}) for k, w in wheres.items()]
        replies = zip(keys, await asyncio.gather(*asked), strict=True)
        frames = [
            {**frame, "name": f"rank {key.rank}: {frame['name']}"}
            for key, reply in replies
            for frame in self._threads.renumbered(key, reply).get("body", {}).get("stackFrames", ())
        ]
        body = {"stackFrames": frames, "totalFrames": len(frames)}
        return _for(request, {"success": True, "body": body})

    async def _rich(self, request: Dap, key: RankKey, asked: Dap) -> Dap:
        """A variable as notebooks show it."""
        name = str(asked.get("variableName"))
        said: Dap = {"success": True, "body": {"data": {}, "metadata": {}}}
        if not name.isidentifier():
            return _for(request, said)
        code = f"get_ipython().display_formatter.format({name})"
        asked = {"expression": code, "frameId": asked.get("frameId"), "context": "clipboard"}
        reply = await self._ask(key, "evaluate", asked)
        if reply.get("success"):
            said["body"]["data"] = boxed(read_bundle(str(reply["body"]["result"])))
        return _for(request, said)

    async def _copy(self, request: Dap, key: RankKey, asked: Dap) -> Dap:
        """A variable of a frame to the names of its rank."""
        source, target = str(asked.get("srcVariableName")), str(asked.get("dstVariableName"))
        if not (source.isidentifier() and target.isidentifier()):
            return _for(request, {"success": False, "message": "names are to be identifiers"})
        into = {
            "expression": f"globals()[{target!r}]",
            "value": source,
            "frameId": asked.get("srcFrameId"),
        }
        return _for(request, await self._ask(key, "setExpression", into))

    def _note_set(self, request: Dap) -> bool:
        """Breakpoints for the next runs, and at once for those that go on; whether these got them."""
        path = (request["arguments"].get("source") or {}).get("path", "")
        with self._lock:
            kept = {"command": request["command"], "arguments": request["arguments"]}
            self._sets[f"{request['command']} {path}"] = kept
            sent = [self._send(key, request["command"], kept["arguments"]) for key in self._runs]
        return None not in sent

    def _end(self) -> None:
        """The front end's debugger is turned off: nothing stands any more, or stops."""
        with self._lock:
            self.is_on = False
            self._sets.clear()
            for pool, run in {(key.pool, run) for key, run in self._runs.items()}:
                self.let_go(self._pools[pool], run)

    # ── to ranks and back ───────────────────────────────────────────────────────────────

    def _send(self, key: RankKey, command: str, arguments: Dap) -> int | None:
        """Ask a rank; the number of the request, None where it is too long, or the rank runs nothing."""
        seq = next(self._seq)
        message = {"type": "request", "seq": seq, "command": command, "arguments": arguments}
        text, run = json.dumps(message), self._runs.get(key)
        if run is None or len(text) > _LARGEST:
            return None
        self._pools[key.pool].lines.send(DebugRequest(run, (key.rank,), text))
        return seq

    async def _ask(self, key: RankKey, command: str, arguments: Dap) -> Dap:
        """A rank's answer; one that says so where none comes."""
        future: asyncio.Future[Dap] = asyncio.get_running_loop().create_future()
        with self._lock:
            seq = self._send(key, command, arguments)
            if seq is None:
                words = _TOO_LONG if key in self._runs else _NO_RUN.format(key.rank)
                return {"success": False, "message": words, "body": {}}
            self._awaited[seq] = future
        try:
            return await asyncio.wait_for(future, _ANSWER)
        except TimeoutError:
            words = f"rank {key.rank} has not answered for {_ANSWER:.0f} s"
            return {"success": False, "message": words, "body": {}}
        finally:
            with self._lock:
                self._awaited.pop(seq, None)

    def _answered(self, said: Dap) -> None:
        future = self._awaited.get(said["request_seq"])
        if future is not None:
            loop = future.get_loop()
            loop.call_soon_threadsafe(lambda: future.done() or future.set_result(said))


def _for(request: Dap, reply: Dap) -> Dap:
    """A reply to this request of the front end."""
    return {
        **reply,
        "type": "response",
        "request_seq": request["seq"],
        "command": request["command"],
    }
