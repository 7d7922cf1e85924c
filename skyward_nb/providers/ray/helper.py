"""The program that speaks to Ray for one pool: `python -I helper.py ADDRESS`, in a Python that has Ray.

Requests come by its stdin, a socket, each with a connection of its own: one object of JSON, whose fields are those of
`messages`. It ends when that socket does. It imports Ray and the standard library alone.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import importlib
import importlib.util
import itertools
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

_NAMESPACE = "skyward_nb"
_MOST = 256 << 10
_WRITES = 8
_READS = 3
"""Calls of one channel that are on their way at once."""
_LONGEST = 1 << 20
_CALL_LIMIT = 60.0
_LOOK_LIMIT = 5.0
_END_LIMIT = 30.0
_PAUSE = 0.1
_BEAT = 3.0
_IDS = ("class_name:", "actor_id:", "pid:", "name:", "namespace:", "ip:")
"""Starts of lines that say nothing to a person."""
_TRIES = 3
_LEAVE_LIMIT = 3.0
_GONE_LIMIT = 30.0
"""Seconds for the end of this process once nobody asks: for groups of its own, and Ray's leave."""


class Helper:
    """A client of one cluster."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._keys = itertools.count()
        self._id = secrets.token_hex(8)
        self._groups: dict[str, Any] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._actors: dict[str, Any] = {}
        self._class = self._actor_class()
        self._serving: set[asyncio.Task[Any]] = set()
        self._beating: dict[str, asyncio.Task[None]] = {}
        self._own: set[str] = set()
        """Groups without actors yet: nobody but this process would end them."""

    def _actor_class(self) -> Any:
        path = Path(__file__).with_name("node_actor.py")
        spec = importlib.util.spec_from_file_location("skyward_node_actor", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        # No node of the cluster has this package.
        self._ray.cloudpickle.register_pickle_by_value(module)
        return module.NodeActor

    # ── groups ──────────────────────────────────────────────────────────────────────────

    async def start_group(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Ask for a placement group."""
        name = asked["group"]
        self._own.add(name)
        self._starting[name] = asyncio.ensure_future(self._make(name, asked["bundles"]))
        await asyncio.shield(self._starting[name])  # it is made, whoever has asked: see `leave`
        return {}

    async def _make(self, name: str, bundles: list[dict[str, float]]) -> None:
        ask = self._ray.util.placement_group
        self._groups[name] = await asyncio.to_thread(
            ask, bundles, "STRICT_SPREAD", name, "detached"
        )

    async def look_at_group(self, asked: dict[str, Any]) -> dict[str, Any]:
        """How a group stands."""
        return await asyncio.to_thread(self._looked, asked["group"])

    def _looked(self, name: str) -> dict[str, Any]:
        group = self._group(name)
        table = {} if group is None else self._ray.util.placement_group_table(group)
        nodes = [
            {"name": node["NodeManagerHostname"], "resources": node["Resources"]}
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return {
            "state": table.get("state", "REMOVED"),
            "scheduling": table.get("stats", {}).get("scheduling_state", ""),
            "nodes": nodes,
        }

    def _group(self, name: str) -> Any:
        if name not in self._groups:
            try:
                self._groups[name] = self._ray.util.get_placement_group(name)
            except ValueError:
                return None
        return self._groups[name]

    async def start_actors(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Start an actor on each node of a group; where they are."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group, bundles = asked["group"], asked["bundles"]
        names = [_actor_name(group, number) for number in range(len(bundles))]
        for number, bundle in enumerate(bundles):
            others = {k: v for k, v in bundle.items() if k not in ("CPU", "GPU", "memory")}
            own = (asked[each].replace("{number}", str(number)) for each in ("program", "keep"))
            made = self._ray.remote(self._class).options(
                name=names[number],
                lifetime="detached",
                max_restarts=0,
                max_concurrency=1000,
                num_cpus=bundle.get("CPU", 0),
                num_gpus=bundle.get("GPU", 0),
                memory=bundle.get("memory"),
                resources=others,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group(group), number),
            )
            self._actors[names[number]] = made.remote(group, names, number, *own)
        started = await _all_started({n: _value(self._actors[n].started.remote()) for n in names})
        self._own.discard(group)
        return {"actors": started}

    async def look_at_actors(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Why each actor is gone."""
        names = [_actor_name(asked["group"], number) for number in range(asked["count"])]
        return {"faults": await asyncio.gather(*map(self._fault, names))}

    async def _fault(self, name: str) -> str:
        try:
            actor = await asyncio.to_thread(self._actor, name)
            is_over = await asyncio.wait_for(_value(actor.has_ended.remote()), _LOOK_LIMIT)
        except ValueError:
            return "Ray does not know it any more"
        except (self._ray.exceptions.ActorUnavailableError, asyncio.TimeoutError):  # noqa: UP041 - its Python may be 3.10
            return ""
        except self._ray.exceptions.RayActorError as error:
            return _reason(error)
        return "its agent has ended" if is_over else ""

    def _actor(self, name: str) -> Any:
        """An actor by its name; raises ValueError if there is none."""
        if name not in self._actors:
            self._actors[name] = self._ray.get_actor(name)
        return self._actors[name]

    async def end_group(self, asked: dict[str, Any]) -> dict[str, Any]:
        """End keepers, actors and the group; whether there was one, and what may still be there."""
        name, count = asked["group"], asked["count"]
        names = [_actor_name(name, number) for number in range(count)]
        if name in self._starting:  # a group that is asked for would appear after its end
            await asyncio.wait([self._starting[name]])
        # A node that does not answer makes each look a slow one.
        until = time.monotonic() + asked["patience"]
        while time.monotonic() < until:
            if all(await asyncio.gather(*map(self._fault, names))):
                break
            await asyncio.sleep(_PAUSE)
        ended = await asyncio.gather(*map(self._finished, names))
        left = [f"actor {each}" for each, done in zip(names, ended) if not done]  # noqa: B905
        if (group := await asyncio.to_thread(self._group, name)) is not None:
            await asyncio.to_thread(self._ray.util.remove_placement_group, group)
        self._own.discard(name)
        until = time.monotonic() + _END_LIMIT
        while time.monotonic() < until:
            state = (await self.look_at_group(asked))["state"]
            if state == "REMOVED" and all(await asyncio.gather(*map(self._fault, names))):
                return {"left": [], "was_there": group is not None}
            await asyncio.sleep(_PAUSE)
        return {"left": left or [f"placement group {name}"], "was_there": group is not None}

    async def _finished(self, name: str) -> bool:
        """End the keeper of an actor; whether that is sure."""
        try:
            actor = await asyncio.to_thread(self._actor, name)
            call = actor.finish.remote(_END_LIMIT)
            return await asyncio.wait_for(_value(call), _END_LIMIT + _LOOK_LIMIT)
        except (ValueError, self._ray.exceptions.RayActorError):
            return True
        except asyncio.TimeoutError:  # noqa: UP041
            return False

    def end_own(self) -> None:
        """Remove groups that have no actors: their pool's notebook was killed as it waited."""
        for name in self._own & self._groups.keys():
            self._ray.util.remove_placement_group(self._groups[name])

    # ── channels ────────────────────────────────────────────────────────────────────────

    async def open(
        self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry a channel of an actor: after `+`, its bytes."""
        name = _actor_name(asked["group"], asked["number"])
        actor = await asyncio.to_thread(self._actor, name)
        if name not in self._beating:
            self._beating[name] = asyncio.ensure_future(self._beat(actor))
        key = f"{self._id}-{next(self._keys)}"
        if asked["type"] == "RunCommand":
            opened = await _value(actor.run.remote(key, asked["words"]))
        else:
            opened = await _value(actor.join.remote(key, asked["path"]))
        writer.write(b"+" if opened else b"-")
        if not opened:
            return
        up = asyncio.ensure_future(_up(actor, key, reader))
        down = asyncio.ensure_future(_down(actor, key, writer))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            with contextlib.suppress(self._ray.exceptions.RayError):
                await asyncio.wait_for(_value(actor.end.remote(key)), _LOOK_LIMIT)

    async def _beat(self, actor: Any) -> None:
        """Tell an actor now and then that this helper lives: else it ends this helper's channels."""
        while True:
            with contextlib.suppress(self._ray.exceptions.RayError, asyncio.TimeoutError):
                await asyncio.wait_for(_value(actor.beat.remote(self._id)), _LOOK_LIMIT)
            await asyncio.sleep(_BEAT)

    async def leave(self) -> None:
        """End all channels: who asked for them is gone."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=_LEAVE_LIMIT)
        ended: list[asyncio.Task[None]] = [*self._serving, *self._beating.values()]
        for task in ended:
            task.cancel()
        # `end_own` removes also groups that Ray is only just asked for.
        await asyncio.gather(*ended, *self._starting.values(), return_exceptions=True)
        asyncio.get_running_loop().stop()

    async def serve(self, connection: socket.socket, text: bytes) -> None:
        """Answer one request, and close its connection."""
        asked = json.loads(text)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MOST)
        try:
            if asked["type"] in ("RunCommand", "JoinSocket"):
                await self.open(asked, reader, writer)
            else:
                writer.write(json.dumps(await self._answer(asked)).encode())
            await writer.drain()
        except (ConnectionError, self._ray.exceptions.RayError, ValueError) as error:
            with contextlib.suppress(ConnectionError):
                writer.write(b"!" + _reason(error).encode())
                await writer.drain()
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        ways = {
            "StartGroup": self.start_group,
            "LookAtGroup": self.look_at_group,
            "StartActors": self.start_actors,
            "LookAtActors": self.look_at_actors,
            "EndGroup": self.end_group,
        }
        try:
            return await ways[asked["type"]](asked)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises is told to the one who asked
            return {"type": "failed", "error": type(error).__name__, "text": _reason(error)}


async def _all_started(calls: dict[str, Any], limit: float = _CALL_LIMIT) -> list[Any]:
    """What each actor says of its start; raises what the first of them does, and RuntimeError with those that are late."""
    tasks = {name: asyncio.ensure_future(call) for name, call in calls.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=limit, return_when=asyncio.FIRST_EXCEPTION)
        started = [task.result() for task in tasks.values() if task.done()]
        if late := [name for name, task in tasks.items() if not task.done()]:
            raise RuntimeError(
                f"{len(late)} of {len(tasks)} actors did not start in {limit:g} s ({', '.join(late[:4])}): `ray list "
                "actors` says how they stand; a node may be fetching an image or an environment"
            )
        return started
    finally:
        for task in tasks.values():
            task.cancel()


def _actor_name(group: str, number: int) -> str:
    return f"{group}.{number}"


async def _value(call: Any) -> Any:
    return await call


async def _up(actor: Any, key: str, reader: asyncio.StreamReader) -> None:
    going: deque[Any] = deque()
    for number in itertools.count():
        data = await reader.read(_MOST)
        if not data:
            # What was written before the end is to arrive, if anybody reads it.
            rest = [asyncio.ensure_future(_value(call)) for call in going]
            if rest:
                await asyncio.wait(rest, timeout=_LOOK_LIMIT)
            return
        going.append(actor.write.remote(key, number, data))
        if len(going) > _WRITES:
            await going.popleft()


async def _down(actor: Any, key: str, writer: asyncio.StreamWriter) -> None:
    going: deque[Any] = deque()
    for number in itertools.count():
        going.append(actor.read.remote(key, number))
        if len(going) < _READS:
            continue
        data = await going.popleft()
        if not data:
            return
        writer.write(data)
        await writer.drain()


def _reason(error: Exception) -> str:
    """An exception's words without traces."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(_IDS)]
    return "; ".join(said[:4]) or type(error).__name__


def _requests(control: socket.socket, loop: asyncio.AbstractEventLoop, helper: Helper) -> None:
    """Take requests until their end; each comes with a connection."""
    size = array.array("i").itemsize
    while True:
        text, told, _flags, _from = control.recvmsg(_LONGEST, socket.CMSG_LEN(size))
        if not text:
            break
        for _level, _kind, data in told:
            (handle,) = array.array("i", data[:size])
            asyncio.run_coroutine_threadsafe(helper.serve(socket.socket(fileno=handle), text), loop)
    asyncio.run_coroutine_threadsafe(helper.leave(), loop)
    # A call of Ray's may hang on that loop, and nobody is left who would end this process.
    time.sleep(_GONE_LIMIT)
    os._exit(1)


def _connect(ray: Any, address: str) -> None:
    """Become a client. Ray's client server forks beside threads of gRPC: now and then that process dies at once (SIGSEGV)."""
    asked = {"address": address, "namespace": _NAMESPACE, "log_to_driver": False}
    for _ in range(_TRIES - 1):
        with contextlib.suppress(ConnectionAbortedError):
            ray.init(**asked, logging_level="ERROR")
            return
    ray.init(**asked, logging_level="ERROR")


def main(address: str) -> None:
    """Become a client of the cluster, say so and by which address it is always the same one, and serve."""
    address = (address == "auto" and os.environ.get("RAY_ADDRESS")) or address
    control = socket.socket(fileno=os.dup(0))
    say = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is no answer
    try:
        ray: Any = importlib.import_module("ray")
        _connect(ray, address)
    except BaseException as error:  # noqa: BLE001 - Ray raises several kinds, and SystemExit too
        words = {"type": "failed", "error": type(error).__name__, "text": str(error)}
        print(json.dumps(words), file=say, flush=True)
        os._exit(1)
    at = address if "://" in address else ray.get_runtime_context().gcs_address
    words = {"ray": ray.__version__, "python": sys.version.split()[0], "cluster": at}
    print(json.dumps({"type": "ready", **words}), file=say, flush=True)
    loop = asyncio.new_event_loop()
    helper = Helper(ray)
    threading.Thread(target=_requests, args=(control, loop, helper), daemon=True).start()
    loop.run_forever()
    helper.end_own()
    ray.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
