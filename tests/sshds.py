"""A real OpenSSH sshd on loopback, for tests that log in: its own keys, config, and client's config."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
from free_ports import free_port
from waiting import until

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
_PRIVSEP = Path("/run/sshd")


def lacks() -> str:
    """Why no sshd can be started here; "" where it can."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        return "there is no sshd here (openssh-server)"
    if os.getuid() == 0 and not _PRIVSEP.exists():
        try:
            _PRIVSEP.mkdir(mode=0o755)
        except OSError:
            return "sshd needs /run/sshd, which cannot be made here"
    return ""


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> str:
    """Make a pair of keys; the public one."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path.with_name(f"{path.name}.pub").read_text()


class Sshd:
    """One sshd; `options` are lines of its config, `environ` what those who log in find set."""

    def __init__(
        self, folder: Path, environ: dict[str, str] | None = None, **options: object
    ) -> None:
        self.folder = folder
        self.address = str(options.pop("ListenAddress", "127.0.0.1"))
        self.user = getpass.getuser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.host_key = folder / "host_ed25519"
        self.client_key = folder / "client_ed25519"
        self.known_hosts = folder / "known_hosts"
        self.client_config = folder / "client_config"
        self.log = folder / "sshd.log"
        self.home = folder.with_name(f"home-{folder.name}")
        """A home with no files for a login shell: what a person's own do there takes its time."""
        self._server: subprocess.Popen[bytes] | None = None
        self.host_public = make_key(self.host_key).split(" test")[0]
        self._private = self.host_key.read_bytes()
        self.authorized = folder / "authorized_keys"
        self._authorized = make_key(self.client_key)
        self.authorized.write_text(self._authorized)
        self.home.mkdir(mode=0o700)
        self.port = free_port(self.address)
        self.environ = environ or {}
        self.options = options
        self._options = dict(options)
        self.know(self.host_public)
        self.say()

    # ── the client's side ───────────────────────────────────────────────────────────────

    @property
    def entry(self) -> str:
        """How known_hosts names it."""
        return f"[{self.address}]:{self.port}"

    def know(self, public: str) -> None:
        """Have the client know this host key, and no other one."""
        self.known_hosts.write_text(f"{self.entry} {public}\n" if public else "")

    def say(self, *lines: str) -> None:
        """Write the client's config; without the person's own keys, agent and files."""
        plain = [
            f"IdentityFile {self.client_key}",
            "IdentitiesOnly yes",
            "IdentityAgent none",
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile /dev/null",
        ]
        self.client_config.write_text("\n".join([*lines, "Host *", *plain]) + "\n")

    def access(self, *hosts: str, **others: object) -> dict[str, object]:
        """Arguments of `sky.SSH`."""
        return {
            "hosts": list(hosts) or [self.address],
            "port": self.port,
            "config": str(self.client_config),
            **others,
        }

    # ── the server ──────────────────────────────────────────────────────────────────────

    def start(self) -> Sshd:
        """Start it; returns when it listens."""
        lines = {
            "Port": self.port,
            "ListenAddress": self.address,
            "HostKey": self.host_key,
            "PidFile": self.folder / "sshd.pid",
            "AuthorizedKeysFile": self.authorized,
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
            "StrictModes": "no",
            "UsePAM": "no",
            "LogLevel": "VERBOSE",
            **self.options,
        }
        text = "".join(f"{word} {value}\n" for word, value in lines.items())
        environ = {"HOME": self.home, **self.environ}
        text += "SetEnv " + " ".join(f"{k}={v}" for k, v in environ.items()) + "\n"
        config = self.folder / "sshd_config"
        config.write_text(text)
        assert SSHD is not None
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        told = self.logged("Connection from")
        until(self._listens)
        # That it was asked is in its log by now, and does not come to it while a test counts.
        until(lambda: self.logged("Connection from") > told)
        return self

    def _listens(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, self.log.read_text()
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with socket.socket(family) as asking:
            return asking.connect_ex((self.address, self.port)) == 0

    @property
    def pid(self) -> int:
        """The process that listens."""
        assert self._server is not None
        return self._server.pid

    def connections(self) -> list[psutil.Process]:
        """Its processes of those who are logged in."""
        found: list[psutil.Process] = []
        for each in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                if each.name().startswith("sshd"):
                    found.append(each)
        return found

    def renew(self) -> None:
        """For the next test: as it was made, with nobody logged in and nothing in its log."""
        has_own_key = self.host_key.read_bytes() == self._private
        if self._server is None or self.options != self._options or not has_own_key:
            self.stop()
            self.options = dict(self._options)
            self.host_key.write_bytes(self._private)
            self.host_key.with_suffix(".pub").write_text(self.host_public)
        else:
            self.cut()
        self.authorized.write_text(self._authorized)
        self.know(self.host_public)
        self.say()
        if self._server is None:
            self.start()
        self.log.write_text("")

    def cut(self) -> None:
        """End the connections there are, as a crash would."""
        found = self.connections()
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        until(lambda: all(map(_has_ended, found)))

    def logged(self, words: str) -> int:
        """How often its log says this."""
        return self.log.read_text(errors="replace").count(words)

    def stop(self) -> None:
        """End it and the connections there are."""
        if self._server is not None:
            # It is held up first: a connection that came after the others were cut would stay.
            self._server.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            self.cut()
            self._server.kill()
            self._server.wait(10)
            self.cut_left()
            self._server = None

    def cut_left(self) -> None:
        """End what it left."""
        for each in psutil.process_iter(["cmdline"]):
            if str(self.folder) in " ".join(each.info["cmdline"] or ()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()


@contextlib.contextmanager
def sshd(folder: Path, environ: dict[str, str] | None = None, **options: object) -> Iterator[Sshd]:
    """One sshd while inside."""
    server = Sshd(folder, environ, **options)
    try:
        yield server.start()
    finally:
        server.stop()


def _has_ended(process: psutil.Process) -> bool:
    """Also where its parent, which was held up, has not taken note."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
