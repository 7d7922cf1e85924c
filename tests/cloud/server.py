"""The cloud as a process of its own: moto's server with its layer, on loopback, and its machines.

On stdin come lines of JSON: the name of a command, and what it takes. Each is answered with a line.
It ends, and all machines with it, when stdin does.
"""

from __future__ import annotations

import base64
import gc
import json
import logging
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from cloud.layer import Layer
from cloud.machines import Machines
from cloud.stock import Stock
from moto import backends
from moto.core import responses
from moto.kms import models as kms
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class Server:
    """What the commands do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._layer = self._new(with_machines=False)
        self._http = make_server("127.0.0.1", 0, self._call, threaded=True)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def _call(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        return self._layer(environ, start)

    def _new(self, *, with_machines: bool) -> Layer:
        stock = Stock()
        stock.reset()
        machines = Machines(self._folder, self._powered_off) if with_machines else None
        return Layer(self._moto, stock, machines)

    def _powered_off(self, instance: str) -> None:
        self._layer.powered_off(instance)

    # ── commands ────────────────────────────────────────────────────────────────────────

    def reset(self, machines: bool) -> dict[str, Any]:
        """An empty cloud."""
        troubles = self.close()
        self._layer = self._new(with_machines=machines)
        return {"port": self._http.server_port, "troubles": troubles}

    def close(self) -> list[str]:
        own = self._layer.machines
        if own is not None:
            own.close()
        return own.troubles if own else []

    def rule(self, **what: Any) -> None:
        self._layer.rules.add(**what)

    def calm(self) -> int:
        """Nothing goes wrong any more; how often something did."""
        return self._layer.rules.calm()

    def calls(self, since: int) -> list[dict[str, Any]]:
        return self._layer.calls[since:]

    def left(self) -> dict[str, list[str]]:
        return self._layer.left()

    def settled(self) -> None:
        self._layer.settled()
        if self._layer.machines:
            self._layer.machines.settled()

    def set(self, name: str, value: Any) -> None:
        """How late machines are seen, how long groups linger and stops take, why machines end at once, the key of disks."""
        assert name in ("late", "lingering", "stopping", "reason", "disk_key")
        setattr(self._layer, name, value)

    def images(self, copying: int, slow: int, reason: str) -> None:
        """How images are made from here on."""
        own = self._layer.baked
        own.copying, own.slow, own.reason = copying, slow, reason

    def disk(self, image: str) -> str:
        """The disk of an image, as a tar archive in base64."""
        found = self._layer.baked.images
        return next(base64.b64encode(e.disk).decode() for (_, n), e in found.items() if n == image)

    def timers(self) -> None:
        self._layer.timers_go_off()

    def roles(self, names: list[str]) -> None:
        self._layer.schedules.roles = set(names)

    def schedules(self) -> list[dict[str, Any]]:
        return list(self._layer.schedules.known.values())

    def states(self) -> dict[str, str]:
        """The state of each instance that there was."""
        return self._layer.states()

    def capacity(self, kind: str, zone: str, count: int) -> None:
        self._layer.capacity[kind, zone] = count

    def quota(self, code: str, limit: float, region: str) -> None:
        self._layer.quotas.limits[region, code] = limit

    def missing(self, parameter: str) -> None:
        self._layer.images.missing.add(parameter)

    def dead(self, instances: bool) -> None:
        """Whether machines that are launched from here on come up."""
        if self._layer.machines:
            self._layer.machines.boots = lambda instance: not instances

    def machines(self) -> list[dict[str, Any]]:
        """The machines that have power."""
        own = self._layer.machines.machines if self._layer.machines else {}
        return [
            {
                "instance": each,
                "name": made.box.name,
                "pid": made.box.pid,
                "public": made.launch.public,
                "private": made.launch.private,
                "kind": made.launch.kind,
                "zone": made.launch.zone,
                "spot": made.launch.spot,
                "status": made.status,
                "host_key": made.host_key,
            }
            for each, made in list(own.items())
        ]

    def console(self, instance: str) -> str:
        own = self._layer.machines
        assert own is not None
        made = own.machines.get(instance)
        return own.consoles.get(instance, "") if made is None else made.console()

    def tell(self, instance: str, path: str, value: str | None) -> None:
        """What the machine's metadata says from here on."""
        own = self._layer.machines
        assert own is not None
        metadata = own.machines[instance].metadata
        assert metadata is not None
        if value is None:
            metadata.values.pop(path, None)
        else:
            metadata.values[path] = value

    def asked(self, instance: str) -> list[str]:
        """What of its metadata was asked for."""
        own = self._layer.machines
        assert own is not None
        metadata = own.machines[instance].metadata
        return [] if metadata is None else list(metadata.asked)

    def reclaim(self, instance: str) -> None:
        self._layer.reclaim(instance)

    def line(self, instance: str, cut: bool) -> None:
        own = self._layer.machines
        assert own is not None
        line = own.machines[instance].front
        line.cut() if cut else line.mend()


# Each cloud that is begun anew has a key for its disks, whose primes took a quarter of all that this process did.
kms.generate_private_key = cache(kms.generate_private_key)

# What moto looks up anew for each call and is always the same took a sixth of all that this process did.
responses.method_names_from_class = cache(responses.method_names_from_class)
backends.list_of_moto_modules = frozenset(backends.list_of_moto_modules()).__iter__


def main() -> None:
    gc.freeze()
    gc.enable()
    answers = os.fdopen(os.dup(1), "w")
    # What moto prints is for whoever reads the log.
    os.dup2(2, 1)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="cloud-") as folder:
        server = Server(Path(folder))
        for line in sys.stdin:
            name, what = json.loads(line)
            try:
                answer = {"value": getattr(server, name)(**what)}
            except Exception:
                answer = {"error": traceback.format_exc()}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        server.close()
    # Else all that moto has read is gone through once more.
    sys.stderr.flush()
    os._exit(0)
