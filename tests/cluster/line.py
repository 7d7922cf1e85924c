"""A line between somebody and a bridge: it can be cut and mended, and be as bad as it is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cluster.box import Box

_WIRE = Path(__file__).with_name("wire.py")


class Line:
    """A port of a bridge; nothing is in between until the line is to be bad."""

    def __init__(self, street: Box, port: str, bridge: str) -> None:
        self._street = street
        self._port = port
        self._bridge = bridge
        self._wire: subprocess.Popen[str] | None = None
        self._at_bridge = port
        self._is_cut = False
        street.links(f"link set {port} master {bridge}", f"link set {port} up")

    def cut(self) -> None:
        """From here on nothing comes or goes, and nobody is told: as a cable cut far away."""
        self._street.links(f"link set {self._at_bridge} nomaster")
        self._is_cut = True

    def mend(self) -> None:
        """What comes and goes does so again."""
        self._street.links(f"link set {self._at_bridge} master {self._bridge}")
        self._is_cut = False

    def netem(self, *, delay: float = 0.0, loss: float = 0.0, rate: float = 0.0) -> None:
        """Seconds of delay each way, a fraction that is lost, bytes per second each way (0: no limit)."""
        wire = self._wire or self._with_wire()
        assert wire.stdin is not None
        assert wire.stdout is not None
        wire.stdin.write(json.dumps({"delay": delay, "loss": loss, "rate": rate}) + "\n")
        wire.stdin.flush()
        assert wire.stdout.readline() == "done\n"

    def _with_wire(self) -> subprocess.Popen[str]:
        """Put a wire between port and bridge. A line that is cut is mended by this."""
        far, near = self._ends
        self._street.links(
            f"link set {self._port} nomaster",
            f"link add {far} type veth peer name {near}",
            f"link set {far} up",
            f"link set {near} master {self._bridge}",
            f"link set {near} up",
        )
        self._at_bridge = near
        self._is_cut = False
        self._wire = subprocess.Popen(
            self._street.entering(sys.executable, "-I", str(_WIRE), self._port, far),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline() == "ready\n"
        return self._wire

    def moved(self) -> tuple[int, int]:
        """Bytes that came from and went to whoever is at the far end of the line."""
        said = self._street.run("ip", "-json", "-s", "link", "show", self._port)
        counted = json.loads(said)[0]["stats64"]
        return counted["rx"]["bytes"], counted["tx"]["bytes"]

    @property
    def _ends(self) -> tuple[str, str]:
        """The links at both ends of the pair between wire and bridge."""
        return f"{self._port[:9]}-far", f"{self._port[:9]}-near"

    def plain(self) -> None:
        """As it was when it was made."""
        if self._wire is not None:
            self.close()
            self._street.links(f"link delete {self._ends[0]}")
            self._at_bridge = self._port
            self._is_cut = True
        if self._is_cut:
            self.mend()

    def close(self) -> None:
        """End the wire, if there is one; then nothing goes over the line."""
        if self._wire is not None:
            self._wire.communicate()
            self._wire = None
