"""A real Ray cluster of this machine: two raylets in a network namespace, in the environment of `.ci/ray`."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build/ray/bin/python"
_TRIES = 5
_AGENTS = ("dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent", "metrics-export")
_PORTS = {"first": 7000, "second": 7100}
"""A raylet waits for ports that its agents choose, but not for long."""
_ADDRESSES = {"first": "10.77.0.2", "second": "10.77.0.3"}


def lacks() -> str:
    """Why no cluster can be started here; "" where it can."""
    if not PYTHON.exists():
        return "there is no Ray here: `make .venv/.stamps/ray` installs it in an environment of its own"
    if os.getuid() or shutil.which("nsenter") is None or shutil.which("ip") is None:
        return "Ray listens on its nodes' addresses: only root can give it a network of its own"
    return ""


class Raylets:
    """The cluster: `first` with the head, and `second`."""

    def __init__(self, folder: Path, store: int = 80_000_000) -> None:
        self.folder = folder
        self._store = store
        folder.mkdir(parents=True)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.environ = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        """What clients of it need."""
        self._network = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"], start_new_session=True
        )
        until(lambda: _network_of(self._network.pid) != _network_of("self"))
        for words in (
            "link set lo up", "link add d0 type veth peer name d1", "link set d0 up", "link set d1 up",
            *(f"addr add {address}/24 dev d0" for address in _ADDRESSES.values()), "route add default dev d0",
        ):  # fmt: skip
            subprocess.run([*self.within, "ip", *words.split()], check=True)
        self.python = folder / "python"
        """The interpreter of Ray's environment, within that network."""
        self.python.write_text(f'#!/bin/sh\nexec {" ".join(self.within)} {PYTHON} "$@"\n')
        self.python.chmod(0o755)

    @property
    def within(self) -> list[str]:
        """The beginning of a command within its network."""
        return ["nsenter", f"--net=/proc/{self._network.pid}/ns/net"]

    @property
    def address(self) -> str:
        """The cluster's own address, from this machine."""
        return f"{_ADDRESSES['first']}:6379"

    @property
    def client_address(self) -> str:
        """The address for clients of Ray elsewhere."""
        return f"ray://{_ADDRESSES['first']}:10001"

    def start(self) -> None:
        """Start all of it; returns when both nodes are there."""
        self._begin(
            "first", "--head", "--port=6379", "--ray-client-server-port=10001", "--include-dashboard=false", f"--temp-dir={self.folder}/t",
        )  # fmt: skip
        self.start_second()

    def start_second(self) -> int:
        """Start the second raylet, and wait until it is a node; its process."""
        self._begin("second", f"--address={self.address}")
        return self._running["second"].pid

    def _begin(self, name: str, *words: str) -> None:
        # Ray gives its own processes 30 s to come up, which a busy machine may not have.
        for _ in range(_TRIES):
            if self._is_up(name, *words):
                return
            self.stop_one(name)
        raise AssertionError((self.folder / f"{name}.out").read_text(errors="replace")[-2000:])

    def _is_up(self, name: str, *words: str) -> bool:
        log = self.folder / f"{name}.out"
        with log.open("wb") as out:
            self._running[name] = subprocess.Popen(
                [
                    *self.within, PYTHON.with_name("ray"), "start", *words,
                    f"--node-ip-address={_ADDRESSES[name]}", "--num-cpus=2", "--num-gpus=2",
                    f"--resources={{\"{name}\": 4}}", f"--object-store-memory={self._store}", "--disable-usage-stats",
                    "--min-worker-port=0", "--max-worker-port=0", "--block",
                    *(f"--{each}-port={port}" for each, port in zip(_AGENTS, range(_PORTS[name], _PORTS[name] + 4), strict=True)),
                ],
                env=self._environ(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        process = self._running[name]
        until(lambda: b"Ray runtime started" in log.read_bytes() or process.poll() is not None, 120)
        return process.poll() is None

    def kill_raylet(self, name: str) -> None:
        """Kill the raylet of a node at once."""
        for process in psutil.Process(self._running[name].pid).children(recursive=True):
            if process.name() == "raylet":
                process.kill()

    def stop(self) -> None:
        """End all of it."""
        for name in reversed([*self._running]):
            self.stop_one(name)
        self._network.kill()
        self._network.wait()

    def stop_one(self, name: str) -> None:
        """End a node's processes."""
        process = self._running.pop(name)
        beside = (
            psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        )
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _, left = psutil.wait_procs(beside, 10)
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    def say(self, program: str) -> str:
        """What a program in Ray's environment prints."""
        done = subprocess.run(
            [self.python, "-c", program],
            env=self._environ(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr[-3000:]
        return done.stdout

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.environ}

    def groups(self) -> list[str]:
        """The placement groups that are not removed, and actors of pools: Ray's own libraries leave some of theirs."""
        program = f"""
import ray, ray.util
ray.init(address={self.address!r}, logging_level=40, log_to_driver=False, namespace="skyward_nb")
for each in ray.util.placement_group_table().values():
    if each["state"] != "REMOVED": print("group", each["name"], each["state"])
for each in ray.util.list_named_actors(): print("group", each)
print("end")
"""
        said = self.say(program)
        assert said.endswith("end\n"), said
        return [line for line in said.splitlines() if line.startswith("group ")]


def _network_of(pid: int | str) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()


@contextlib.contextmanager
def raylets(folder: Path, store: int = 80_000_000) -> Iterator[Raylets]:
    """A cluster that is up; each node's object store has `store` bytes."""
    made = Raylets(folder, store)
    try:
        made.start()
        yield made
    finally:
        made.stop()
