"""Several test hosts, and what somebody needs who logs in to them: a key, a config, known hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster.host import Host, new_key
from cluster.line import Line
from cluster.street import Street


class Town(Sequence[Host]):
    """Hosts gpu1, gpu2, … that `ann` may log in to with a key, as an OpenSSH config file says.

    With `behind` all but the first are reached by way of the first alone.
    """

    def __init__(
        self, count: int, folder: Path, *, behind: bool = False, **options: object
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = folder / "key"
        self.config = folder / "config"
        self.known_hosts = folder / "known_hosts"
        authorized = new_key(self.key, "ann")
        self.street = Street()
        self._hosts: list[Host] = []
        places = {
            f"gpu{number + 1}": ("back" if behind and number else "front", 11 + number)
            for number in range(count)
        }
        try:
            for name, (bridge, place) in places.items():
                # The first of those with others behind it stands on both sides.
                seen = {
                    each: self.street.address("back" if behind and bridge == "back" else where, at)
                    for each, (where, at) in places.items()
                }
                made = Host(
                    name, self.street, place, folder, authorized, bridge=bridge, names=seen, **options
                )  # fmt: skip
                self._hosts.append(made)
            if behind:
                first = self._hosts[0]
                self.street.connect(first.box, "back", first.name, 11, "eth1")
        except BaseException:
            self.close()
            raise
        self.know()
        self.config.write_text("".join(self._entry(each, behind=behind) for each in self._hosts))

    def _entry(self, host: Host, *, behind: bool) -> str:
        lines = {
            "HostName": host.address,
            "User": "ann",
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
        }
        if behind and host is not self._hosts[0]:
            lines["ProxyJump"] = self._hosts[0].name
        return f"Host {host.name}\n" + "".join(f"  {key} {value}\n" for key, value in lines.items())

    def know(self) -> None:
        """Write the hosts' keys to known_hosts, under the addresses that they are asked at."""
        self.known_hosts.write_text(
            "".join(
                f"{address} {' '.join(each.host_key.split()[:2])}\n"
                for each in self._hosts
                for address in (each.address, each.address6)
            )
        )

    @property
    def line(self) -> Line:
        """The line between this machine and all hosts."""
        return self.street.line

    @property
    def names(self) -> list[str]:
        return [each.name for each in self._hosts]

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, index):
        return self._hosts[index]

    def ssh(self, name: str, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Log in by OpenSSH's own client."""
        words = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", *options, name, script]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def close(self) -> None:
        """Nothing is left of the town."""
        for each in self._hosts:
            each.close()
        self.street.close()
