"""Several test hosts, and what somebody needs who logs in to them: a key, a config, known hosts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from copy import copy
from pathlib import Path

from cluster.host import Host, new_key
from cluster.line import Line
from cluster.street import Street

_MOST = 8
"""Hosts have the addresses of so many, though there are less as yet."""
BOXES = "boxes.json"
"""Beside the config: by the names of hosts, the beginning of a command here that ann runs there without SSH."""
_SENT = "/home/ann/.cache/skyward_nb/code*"
"""The package itself, which a host was sent."""


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
        self._authorized = new_key(self.key, "ann")
        self._behind = behind
        self.says: dict[str, object] = {}
        """What the config says of hosts beside how they are logged in to."""
        self._options = options
        self.street = Street()
        self._hosts: list[Host] = []
        try:
            self.grow(count)
        except BaseException:
            self.close()
            raise

    def grow(self, count: int) -> None:
        """Have so many hosts, if there are less."""
        for number in range(len(self), count):
            bridge = "back" if self._behind and number else "front"
            # The first of those with others behind it stands on both sides.
            names = {
                f"gpu{each + 1}": self.street.address(
                    "back" if self._behind and (number or each) else "front", 11 + each
                )
                for each in range(max(count, _MOST))
            }
            made = Host(
                f"gpu{number + 1}", self.street, 11 + number, self.folder, self._authorized,
                bridge=bridge, names=names, **self._options,
            )  # fmt: skip
            self._hosts.append(made)
            if self._behind and not number:
                self.street.connect(made.box, "back", made.name, 11, "eth1")
        self.introduce()

    def first(self, count: int) -> Town:
        """The first of its hosts, as a town."""
        part = copy(self)
        part._hosts = self._hosts[:count]
        part.says = {}
        part.introduce()
        return part

    def introduce(self) -> None:
        """Write what OpenSSH's client is to know: config, and the hosts' keys."""
        self.know()
        self.config.write_text("".join(self._entry(each) for each in self._hosts))
        boxes = {each.name: each.command for each in self._hosts}
        self.config.with_name(BOXES).write_text(json.dumps(boxes))

    def _entry(self, host: Host) -> str:
        lines = {
            "HostName": host.address,
            "User": "ann",
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            **self.says,
        }
        if self._behind and host is not self._hosts[0]:
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

    def mend(self) -> None:
        """Lines are as they were; what runs on hosts goes on."""
        for each in (self, *self._hosts):
            each.line.plain()

    def empty(self) -> None:
        """For the next test: nothing runs on its hosts, and all that they keep is this package."""
        self.line.plain()
        for each in self._hosts:
            each.empty(keep=_SENT)

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


class Towns:
    """Towns that the tests of a module have one after another, by what is asked of their hosts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[tuple[str, object], ...], Town] = {}
        self._lent: list[Town] = []

    def lend(self, count: int, **options: object) -> Town:
        """So many hosts, on which nobody has been since they were emptied."""
        asked = tuple(sorted(options.items()))
        if asked not in self._made:
            self._made[asked] = Town(count, self._folder / f"town{len(self._made)}", **options)
        town = self._made[asked]
        town.grow(count)
        self._lent.append(town.first(count))
        return self._lent[-1]

    def take_back(self) -> None:
        """Empty those that were lent."""
        while self._lent:
            self._lent.pop().empty()

    def close(self) -> None:
        for town in self._made.values():
            town.close()
