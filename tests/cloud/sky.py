"""A cloud for tests: its API, what is to go wrong in it, what was asked of it, and what is left in it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cluster.box import Inside
from waiting import until

_TESTS = Path(__file__).parents[1]
_SOON = 120.0
"""Seconds that what comes about by itself may take on a machine that is busy."""
_SERVER = "import gc; gc.disable(); from cloud.server import main; main()"
"""What moto reads as it is imported is all kept: collecting garbage meanwhile takes as long as the import."""

_MOTO = {"MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}
"""Images are those that parameters of SSM tell of; hundreds of others would be made anew for each region, at each reset."""


@dataclass(frozen=True)
class Called:
    """A call that was made: `code` is the error's, or what became of whoever called; "" if it went well."""

    service: str
    action: str
    region: str
    key: str
    parameters: dict[str, Any]
    code: str


class CloudMachine(Inside):
    """A machine that has power, as `Inside` of its box."""

    def __init__(self, cloud: Cloud, told: Mapping[str, Any]) -> None:
        super().__init__(told["name"], told["pid"])
        self._cloud = cloud
        self.instance: str = told["instance"]
        self.public: str = told["public"]
        self.private: str = told["private"]
        self.kind: str = told["kind"]
        self.zone: str = told["zone"]
        self.spot: bool = told["spot"]
        self.host_key: str = told["host_key"]
        """The key that it had before its user-data ran."""

    def file(self, path: str) -> Path:
        """A path of the machine, as this one sees it."""
        return self.root / path.lstrip("/")

    def sh(self, script: str, *, check: bool = True) -> str:
        """What a shell script says that root runs there, not by SSH."""
        return self.run("/bin/sh", "-c", script, check=check)

    def console(self) -> str:
        """What its user-data wrote."""
        return self._cloud.ask("console", instance=self.instance)

    @property
    def status(self) -> int | None:
        """What its user-data ended with; None while it runs."""
        told = {each["instance"]: each for each in self._cloud.ask("machines")}
        return told[self.instance]["status"]

    def asked(self) -> list[str]:
        """What of its metadata was asked for."""
        return self._cloud.ask("asked", instance=self.instance)

    def pass_time(self, seconds: float) -> None:
        """Its time since it was booted goes on by this at once, and what sleeps there has slept.

        From here on, `/proc/uptime` goes on by such steps alone.
        """
        own = self.file("/run/uptime")
        is_first = not own.exists()
        own.write_text(f"{float(self.sh('cat /proc/uptime').split()[0]) + seconds:.2f} 0.00\n")
        if is_first:
            self.sh("mount --bind /run/uptime /proc/uptime")
        for pid, words in self.processes().items():
            if words.startswith("sleep "):
                self.run("kill", str(pid), check=False)

    def notice(self, action: str = "terminate", seconds: float = 120) -> None:
        """EC2 wants it back: its metadata says so from here on, and when."""
        when = datetime.now(UTC) + timedelta(seconds=seconds)
        word = json.dumps({"action": action, "time": f"{when:%Y-%m-%dT%H:%M:%SZ}"})
        path = "meta-data/spot/instance-action"
        self._cloud.ask("tell", instance=self.instance, path=path, value=word)

    def reclaim(self) -> None:
        """EC2 takes it back; nothing of it runs any more then."""
        self._cloud.ask("reclaim", instance=self.instance)
        until(lambda: not Path(f"/proc/{self.pid}").exists(), _SOON)

    def cut(self) -> None:
        """From here on nothing comes from here to it, and nobody is told."""
        self._cloud.ask("line", instance=self.instance, cut=True)

    def mend(self) -> None:
        self._cloud.ask("line", instance=self.instance, cut=False)


class Cloud:
    """A server, which tests use one after another; `reset` empties it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = threading.Lock()
        self.log = folder / "server.log"
        # It lives as long as the tests: it is no process of a pool of theirs.
        env = {name: each for name, each in os.environ.items() if name != "SKYWARD_RUNTIME_DIR"}
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**env, **_MOTO, "PYTHONPATH": str(_TESTS)},
                start_new_session=True,
            )
        self._port = 0

    def ask(self, command: str, **what: Any) -> Any:
        """What the server answers to a command; see `server.Server`."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._lock:
            self._server.stdin.write(json.dumps([command, what]) + "\n")
            self._server.stdin.flush()
            line = self._server.stdout.readline()
        if not line:
            raise RuntimeError(f"the cloud has ended: {self.log.read_text()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def reset(self, *, machines: bool = True) -> None:
        """An empty cloud. Without `machines`, instances are words of the API alone."""
        told = self.ask("reset", machines=machines)
        self._port = told["port"]
        assert not told["troubles"], "\n".join(told["troubles"])

    # ── who asks ────────────────────────────────────────────────────────────────────────

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def env(self, own: Path) -> dict[str, str]:
        """The environment in which boto3 asks this cloud and nothing else; files lie in `own`."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(own / "aws_config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(own / "aws_credentials"),
            "SKYWARD_CHECKIP_URL": f"{self.url}/checkip",
            "SKYWARD_STATE_DIR": str(own / "state"),
            "XDG_CACHE_HOME": str(own / "cache"),
        }

    # ── what goes wrong ─────────────────────────────────────────────────────────────────

    def fail(self, action: str, code: str, **how: Any) -> None:
        """The next calls of this action get this error; see `rules.Rule` for how many, and which."""
        self.ask("rule", action=action, how=code, **how)

    def kill(self, action: str, when: str, **how: Any) -> None:
        """Kill whoever makes this call, `before`, when it is `sent` or `answered`."""
        self.ask("rule", action=action, how=when, **how)

    def lose(self, action: str, **how: Any) -> None:
        """The call is carried out, and never answered."""
        self.ask("rule", action=action, how="lost", **how)

    def calm(self) -> int:
        """Nothing goes wrong any more; returns how often something did."""
        return self.ask("calm")

    def leases_run_out(self, seconds: float = _SOON) -> None:
        """Time goes on for all machines, until those that nobody needs have ended by themselves."""

        def none_left() -> bool:
            self.ask("settled")
            self.timers_go_off()
            for each in self.machines:
                # It may be ending just now.
                with contextlib.suppress(RuntimeError, OSError, ValueError, IndexError):
                    each.pass_time(7200)
            return not self.machines

        until(none_left, seconds)

    def timers_go_off(self) -> None:
        """The time of all timers has come that end stopped machines."""
        self.ask("timers")

    def timers(self) -> list[dict[str, Any]]:
        """The timers that there are, as they were made."""
        return self.ask("schedules")

    def roles(self, *names: str) -> None:
        """The roles that there are, by which timers end machines."""
        self.ask("roles", names=names)

    def states(self) -> dict[str, str]:
        """The state of each instance that there was."""
        return self.ask("states")

    def images(self, *, copying: int = 0, slow: int = 0, reason: str = "") -> None:
        """Of images that are asked for from here on: how often they are told to be copied, how often snapshots are asked for

        before they begin, and why EC2 cannot make them.
        """
        self.ask("images", copying=copying, slow=slow, reason=reason)

    def image_disk(self, image: str) -> bytes:
        """The disk of an image, as a tar archive."""
        return base64.b64decode(self.ask("disk", image=image))

    def stopping(self, times: int) -> None:
        """Machines that are stopped from here on are told to be on their way the first times."""
        self.ask("set", name="stopping", value=times)

    def capacity(self, kind: str, zone: str, count: int) -> None:
        """How many more machines of a type a zone has."""
        self.ask("capacity", kind=kind, zone=zone, count=count)

    def quota(self, code: str, limit: float, region: str = "") -> None:
        """How many vCPUs an account may have."""
        self.ask("quota", code=code, limit=limit, region=region)

    def lacks(self, parameter: str) -> None:
        """No image has this parameter."""
        self.ask("missing", parameter=parameter)

    def late(self, times: int) -> None:
        """Machines that are launched from here on are not seen the first times."""
        self.ask("set", name="late", value=times)

    def lingering(self, times: int) -> None:
        """Groups count as used for so many tries after their machines have ended."""
        self.ask("set", name="lingering", value=times)

    def ends_at_once(self, code: str, words: str) -> None:
        """Machines that are launched from here on are gone as soon as they are looked at."""
        self.ask("set", name="reason", value=[code, words])

    def disk_key(self, key: str) -> None:
        """The account encrypts disks with this key."""
        self.ask("set", name="disk_key", value=key)

    def dead(self, yes: bool = True) -> None:
        """Machines that are launched from here on never come up."""
        self.ask("dead", instances=yes)

    # ── what there is ───────────────────────────────────────────────────────────────────

    @property
    def calls(self) -> list[Called]:
        """All calls since the cloud is empty."""
        return [Called(**each) for each in self.ask("calls", since=0)]

    def actions(self) -> list[str]:
        """Their actions, in order."""
        return [each.action for each in self.calls]

    @property
    def machines(self) -> list[CloudMachine]:
        """Those that have power."""
        return [CloudMachine(self, each) for each in self.ask("machines")]

    def up(self, count: int, seconds: float = _SOON) -> list[CloudMachine]:
        """Wait until so many have power."""
        found: list[CloudMachine] = []

        def are_up() -> bool:
            found[:] = self.machines
            return len(found) == count

        until(are_up, seconds)
        return found

    def booted(self, count: int, seconds: float = _SOON) -> list[CloudMachine]:
        """Wait until so many have run their user-data."""

        def done() -> list[CloudMachine] | None:
            told = [each for each in self.ask("machines") if each["status"] is not None]
            return [CloudMachine(self, each) for each in told] if len(told) == count else None

        return until(done, seconds)

    def left(self) -> dict[str, list[str]]:
        """What there is that costs, or that somebody would have to clean up, by kind."""
        return self.ask("left")

    def nothing_left(self, seconds: float = _SOON) -> None:
        """There is nothing of it, or soon will not be."""
        end = time.monotonic() + seconds
        while (left := self.left() or self.machines) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left, left

    def __iter__(self) -> Iterator[CloudMachine]:
        return iter(self.machines)

    def close(self) -> None:
        """Nothing is left of the cloud."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        try:
            self._server.wait(30)
        except subprocess.TimeoutExpired:
            os.kill(self._server.pid, signal.SIGKILL)
            self._server.wait()
        self._server.stdout.close()
