"""The network that test hosts stand on: bridges in a box of their own, and one link from here to it.

All addresses are of one number, which is the name of the link: whoever makes the link has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cluster.box import Box
from cluster.line import Line

_GATEWAY = Path(__file__).with_name("gateway.py")
_NUMBERS = 250


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Street:
    """A bridge that this machine is linked to, and one behind, that only hosts are linked to."""

    def __init__(self) -> None:
        self.box = Box("street")
        self._gateway: subprocess.Popen[str] | None = None
        self._out = ""
        self.box.links(
            "link set lo up",
            *(f"link add {each} type bridge forward_delay 0" for each in ("front", "back")),
            *(f"link set {each} up" for each in ("front", "back")),
        )
        self.number = self._moved_in()
        self.link = f"sky-{self.number}"
        self.line = Line(self.box, "notebook", "front")
        _ip("address", "add", f"{self.address('front', 1)}/24", "dev", self.link)
        _ip("-6", "address", "add", f"{self.address6('front', 1)}/64", "dev", self.link, "nodad")
        _ip("link", "set", self.link, "up")
        # What is behind has no other way from here, also not by this machine's own gateway.
        _ip("route", "add", f"{self.address('back', 0)}/24", "dev", self.link)

    def _moved_in(self) -> int:
        """The number of the link that was made: one that nobody has, also not in another run."""
        taken = {route["dst"] for route in json.loads(_ip("-json", "-4", "route", "show") or "[]")}
        for step in range(_NUMBERS):
            number = 1 + (os.getpid() + step) % _NUMBERS
            if f"10.213.{number}.0/24" in taken:
                continue
            end = ("peer", "name", "notebook", "netns", str(self.box.pid))
            try:
                _ip("link", "add", f"sky-{number}", "type", "veth", *end)
            except RuntimeError as error:
                if "File exists" not in str(error):
                    raise
                continue
            return number
        raise RuntimeError("all streets are taken: ip link show type veth")

    def address(self, bridge: str, place: int) -> str:
        return f"10.{213 if bridge == 'front' else 214}.{self.number}.{place}"

    def address6(self, bridge: str, place: int) -> str:
        return f"fd5c:{213 if bridge == 'front' else 214}:{self.number}::{place}"

    def connect(self, box: Box, bridge: str, name: str, place: int, inside: str) -> Line:
        """Link a box to a bridge."""
        port = f"{name}-{bridge}"
        self.box.links(f"link add {port} type veth peer name {inside} netns {box.pid}")
        box.links(
            "link set lo up",
            f"address add {self.address(bridge, place)}/24 dev {inside}",
            f"address add {self.address6(bridge, place)}/64 dev {inside} nodad",
            f"link set {inside} up",
        )
        return Line(self.box, port, bridge)

    def gateway(self) -> str:
        """Open a way out for hosts that ask for it; returns the address of its proxy."""
        if self._gateway is None:
            own = self.address("front", 2)
            self.box.links(f"address add {own}/24 dev front")
            self._gateway = subprocess.Popen(
                [sys.executable, "-I", str(_GATEWAY), str(self.box.pid), own],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._gateway.stdout is not None
            self._out = f"http://{own}:{int(self._gateway.stdout.readline())}"
        return self._out

    def close(self) -> None:
        """Nothing of the street is left, also not its link."""
        self.line.close()
        if self._gateway is not None:
            self._gateway.communicate()
        subprocess.run(["ip", "link", "delete", self.link], capture_output=True)
        self.box.close()
