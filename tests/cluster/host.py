"""One test host: a box on the street with users of its own, and OpenSSH's server in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from cluster.box import Box
from cluster.street import Street
from waiting import until

USERS = {"ann": 4001, "bob": 4002}
"""Who can log in: the person, and somebody else."""

_PRIVATE = ("/tmp", "/var/tmp", "/home", "/root", "/run", "/dev/shm")
"""Folders that no two hosts share; all else is this machine's."""

_CERTIFICATES = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
_SSHD = "/usr/sbin/sshd"
_FOLDER = "/run/sshd"
_COMMANDS = "/run/bin"
"""What whoever logs in finds: the commands of this machine but for its Pythons."""
_OPTIONS = {
    "HostKey": f"{_FOLDER}/host_key",
    "PidFile": f"{_FOLDER}/pid",
    "AuthorizedKeysFile": ".ssh/authorized_keys",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "UsePAM": "no",
    "UseDNS": "no",
    "PrintMotd": "no",
    "LogLevel": "VERBOSE",
    "Subsystem": "sftp internal-sftp",
}

_EMPTY = """
[ "$(readlink /proc/self/ns/pid)" != '{here}' ] || {{ echo 'this is no host: its first process has ended' >&2; exit 1; }}
kill -9 -1
while set -- /proc/[0-9]*; [ $# -gt 2 ]; do sleep 0.01; done
rm -f /run/sshd/pid /run/sshd/log
cd /
find /tmp /var/tmp /dev/shm /home /root $(ls -d /run/user 2>/dev/null) -xdev -mindepth 1 -depth \\
    -not -path '{keep}' \\( -not -type d -o -empty \\) -delete
"""
"""Ends all processes but process 1 and this one, waits until they are gone, and removes what they wrote."""


def new_key(path: Path, comment: str) -> str:
    """Makes a key pair; returns the public half."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(words, check=True)
    return path.with_suffix(".pub").read_text()


def _users(login: str) -> dict[str, str]:
    """The files that say who there is: this machine's users, and ours."""
    passwd, group, shadow = (
        Path("/etc", name).read_text() for name in ("passwd", "group", "shadow")
    )
    for name, uid in USERS.items():
        passwd += f"{name}:x:{uid}:{uid}::/home/{name}:{login}\n"
        group += f"{name}:x:{uid}:\n"
        shadow += f"{name}:*:19000:0:99999:7:::\n"
    return {"/etc/passwd": passwd, "/etc/group": group, "/etc/shadow": shadow}


def needed(python: str | None) -> list[str]:
    """Folders that hosts need of this machine, and that lie where each has its own."""
    asked = {sys.prefix: 0, sys.base_prefix: 0}
    if python is not None:
        asked[str(Path(python).parent)] = 0
    return [each for each in asked if any(Path(each).is_relative_to(own) for own in _PRIVATE)]


def _become(user: str) -> list[str]:
    """The beginning of a command that a user of the box runs."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]


def _whole_line(path: Path) -> str:
    """What a file says, once its line is whole."""
    text = path.read_text()
    return text if text.endswith("\n") else ""


class Host:
    """A machine of its own, as far as whoever logs in can tell."""

    def __init__(
        self,
        name: str,
        street: Street,
        place: int,
        folder: Path,
        authorized: str,
        *,
        bridge: str = "front",
        names: Mapping[str, str],
        disk: str = "4g",
        login: str = "/bin/bash",
        python: str | None = sys.base_prefix + "/bin",
        egress: bool = False,
    ) -> None:
        self.name = name
        self._authorized = authorized
        self.street = street
        self.bridge = bridge
        self.address = street.address(bridge, place)
        self.address6 = street.address6(bridge, place)
        path = f"{python}:{_COMMANDS}" if python else _COMMANDS
        env = {"PATH": path}
        if egress:
            env |= {"HTTPS_PROXY": street.gateway(), "SSL_CERT_FILE": _CERTIFICATES}
        self._environment = " ".join(f"{key}={value}" for key, value in env.items())
        self._variables = [f"{key}={value}" for key, value in env.items()]
        self.back = street.address("back", place)
        """Where those behind it reach it, if there are any."""
        self._named = "".join(f"{address} {each}\n" for each, address in names.items())
        self.box = Box(
            name,
            fresh={
                "/tmp": "mode=1777,size=1g",
                "/var/tmp": "mode=1777,size=1g",
                "/dev/shm": "mode=1777,size=2g",
                "/run": "mode=755,size=16m",
                "/root": "mode=755,size=16m",
                "/home": f"mode=755,size={disk}",
            },
            kept=needed(python),
            files={
                "/etc/hosts": f"127.0.0.1 localhost\n::1 localhost\n{self._named}",
                "/etc/hostname": f"{name}\n",
                "/etc/resolv.conf": "",
                **_users(login),
            },
            commands=_COMMANDS,
        )
        try:
            self.line = street.connect(self.box, bridge, name, place, "eth0")
            self.file(_FOLDER).mkdir(mode=0o755)
            self.host_key = new_key(folder / f"{name}_host_key", name)
            self._install_key(folder / f"{name}_host_key")
            self._settle()
        except BaseException:
            self.close()
            raise

    def _settle(self) -> None:
        """Its users' homes, its server."""
        for user, uid in USERS.items():
            home = self.file(f"/home/{user}")
            for each in (home, home / ".ssh"):
                each.mkdir(exist_ok=True)
                each.chmod(0o700)
                os.chown(each, uid, uid)
            self.authorize(user, self._authorized)
        self.start_sshd()

    def empty(self, *, keep: str = "") -> None:
        """End all that runs there, remove all that was written, and begin anew with a plain sshd.

        What matches `keep`, a pattern of `find -path`, stays.
        """
        self.line.plain()
        here = Path("/proc/self/ns/pid").readlink()
        self.run(_EMPTY.format(keep=keep or "/none", here=here))
        self._settle()

    # ── files ────────────────────────────────────────────────────────────────────────────

    def file(self, path: str) -> Path:
        """A path of the host, as this machine sees it."""
        return self.box.root / path.lstrip("/")

    def authorize(self, user: str, keys: str) -> None:
        """Say which public keys let a user in: these, and no others."""
        path = self.file(f"/home/{user}/.ssh/authorized_keys")
        path.write_text(keys)
        path.chmod(0o600)
        os.chown(path, USERS[user], USERS[user])

    def free(self, folder: str = "/home") -> int:
        """Bytes that are free there."""
        room = os.statvfs(self.file(folder))
        return room.f_bavail * room.f_frsize

    def fill(self, folder: str = "/home", *, leave: int = 0) -> None:
        """Fill up a disk of the host but for this many bytes."""
        with self.file(f"{folder}/filler").open("ab") as filler:
            os.posix_fallocate(filler.fileno(), 0, max(1, self.free(folder) - leave))

    def unfill(self, folder: str = "/home") -> None:
        self.file(f"{folder}/filler").unlink()

    # ── sshd ─────────────────────────────────────────────────────────────────────────────

    def _install_key(self, path: Path) -> None:
        own = self.file(f"{_FOLDER}/host_key")
        own.write_text(path.read_text())
        own.chmod(0o600)

    def new_host_key(self, folder: Path) -> None:
        """Another host key, as after somebody set up the host anew; counts from the next start."""
        path = folder / f"{self.name}_host_key_{time.monotonic_ns()}"
        self.host_key = new_key(path, self.name)
        self._install_key(path)

    def start_sshd(self, **options: object) -> None:
        """Start the server with options of sshd_config; once this returns, it listens."""
        asked = {**_OPTIONS, "SetEnv": self._environment, **options}
        lines = "".join(f"{key} {value}\n" for key, value in asked.items())
        self.file(f"{_FOLDER}/config").write_text(lines)
        self.box.run(_SSHD, "-f", f"{_FOLDER}/config", "-E", f"{_FOLDER}/log")
        # It has gone to the background when it listens, and writes its number a moment later.
        self._server()

    def _server(self) -> int:
        """The process id of the server, in the host."""
        path = self.file(f"{_FOLDER}/pid")
        try:
            return int(until(lambda: path.exists() and _whole_line(path)))
        except AssertionError:
            raise AssertionError(self.sshd_log()) from None

    def stop_sshd(self) -> None:
        """Kill the server and all connections that it has. What they started stays.

        Once this returns its port is free: a process that was killed holds it until it is gone.
        """
        self._kill_all_sshd()
        self.file(f"{_FOLDER}/pid").unlink()

    def drop_lines(self) -> None:
        """Kill each connection that the server has, as when it is restarted carelessly."""
        self._kill_all_sshd(but=self._server())

    def _kill_all_sshd(self, *, but: int | None = None) -> None:
        """Kill what sshd runs, also what it forks meanwhile, and wait until it is gone.

        The server is the first to be killed, so that it forks no more.
        """
        spared = () if but is None else (but,)

        def gone() -> bool:
            found = [
                pid
                for pid, words in self.processes().items()
                if words.startswith(("sshd", _SSHD)) and pid not in spared
            ]
            if found:
                self.box.run("kill", "-9", *map(str, found), check=False)
            return not found

        until(gone)

    def sshd_log(self) -> str:
        """What the server wrote."""
        return self.file(f"{_FOLDER}/log").read_text()

    # ── what runs there ──────────────────────────────────────────────────────────────────

    def run(self, script: str, *, user: str = "root", check: bool = True) -> str:
        """What a shell script says that this user runs on the host, not by SSH."""
        words = ["/bin/sh", "-c", f"cd ~\n{script}"]
        return self.box.run(*(_become(user) if user != "root" else []), *words, check=check)

    @property
    def command(self) -> list[str]:
        """The beginning of a command here that ann runs there, with the variables of a login, not by SSH."""
        return self.box.entering(*_become("ann"), "env", *self._variables)

    def processes(self) -> dict[int, str]:
        """Command lines on the host by process id, as the host counts."""
        return self.box.processes()

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process of the host."""
        self.box.run("kill", f"-{int(number)}", str(pid), check=False)

    # ── its link ─────────────────────────────────────────────────────────────────────────

    def cut(self) -> None:
        """From here on nothing comes or goes, and nobody is told: as a cable cut far away."""
        self.line.cut()

    def mend(self) -> None:
        """What comes and goes does so again."""
        self.line.mend()

    def netem(self, **how: float) -> None:
        """Seconds of `delay` each way, a fraction of `loss`, bytes per second each way as `rate`."""
        self.line.netem(**how)

    def close(self) -> None:
        """End the host and all that runs there, as pulling its plug does."""
        if hasattr(self, "line"):
            self.line.close()
        self.box.close()
