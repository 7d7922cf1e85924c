"""One machine of the cloud: a box that boots as an image of Ubuntu does, and runs its user-data.

What it writes is its own; what of this machine it sees, it can only read. It has no systemd. On its
PATH lie the programs of `image/`: `poweroff` and what leads to it end the machine, which is told to
whoever made it, as the hypervisor would hear of it.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cloud import imds
from cluster.box import Box
from cluster.host import needed, new_key
from cluster.street import Street
from waiting import until

USER, UID = "ubuntu", 1000
_IMAGE = Path(__file__).with_name("image")
_PLACES = {"systemctl": "bin", "sudo": "bin"}
"""All others lie in sbin."""
_KEY = "/etc/ssh/ssh_host_ed25519_key"
_CONSOLE = "/var/log/cloud-init-output.log"
_SCRIPT = "/var/lib/cloud/instance/user-data.txt"
_ON_DISK = (
    "home", "etc/ssh", "etc/systemd", "etc/machine-id", "var/lib/skyward", "var/lib/cloud", "var/log", "var/tmp", "tmp",
)  # fmt: skip
_CONFIG = {
    "HostKey": _KEY,
    "PidFile": "/run/sshd.pid",
    "AuthorizedKeysFile": ".ssh/authorized_keys",
    "PermitRootLogin": "no",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "UsePAM": "no",
    "UseDNS": "no",
    "PrintMotd": "no",
    "LogLevel": "VERBOSE",
    "Subsystem": "sftp internal-sftp",
    "SetEnv": f"PATH={sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin",
}


@dataclass(frozen=True)
class Launch:
    """What a machine is made from."""

    instance: str
    kind: str
    image: str
    zone: str
    spot: bool
    public: str
    private: str
    key: str
    """The public key that it was launched with; "" without one."""
    user_data: bytes
    disk: bytes = b""
    """What the disk has that its image was made of; nothing of an image of AWS."""


class Machine:
    """A machine that was launched; `ended` is called when it powers off by itself."""

    def __init__(
        self,
        street: Street,
        place: int,
        launch: Launch,
        folder: Path,
        ended: Callable[[], None],
        disk: bytes = b"",
    ) -> None:
        self.launch = launch
        self.place = place
        self.metadata: imds.Metadata | None = None
        self.status: int | None = None
        """What its user-data ended with; None while it runs."""
        self._ended = ended
        self._disk = disk
        """What it had on its disk when it was stopped."""
        self._lock = threading.Lock()
        self._is_over = False
        self._folder = folder
        self._threads: list[threading.Thread] = []
        self.box = Box(
            f"ip-{launch.private.replace('.', '-')}",
            fresh={
                "/tmp": "mode=1777,size=1g",
                "/var/tmp": "mode=1777,size=1g",
                "/dev/shm": "mode=1777,size=2g",
                "/run": "mode=755,size=64m",
                "/root": "mode=755,size=64m",
                "/home": "mode=755,size=4g",
            },
            kept=needed(sys.base_prefix + "/bin"),
            overlaid=("/etc", "/usr", "/var"),
            closed=True,
        )
        try:
            front = f"m{place}"
            self.front = street.connect(self.box, "front", front, place, "ens5")
            # As the pool's security group has it: by public addresses comes who rents, and no other
            # member; nor do machines know of them.
            street.box.links(f"link set {front}-front type bridge_slave isolated on")
            own, caller = street.address("front", place), street.address("front", 1)
            self.box.links(
                "address flush dev ens5",
                f"address add {own}/32 dev ens5",
                f"route add {caller} dev ens5 src {own}",
            )
            self.back = street.connect(self.box, "back", front, place, "ens6")
            self._install()
        except BaseException:
            self.close()
            raise

    # ── the image ───────────────────────────────────────────────────────────────────────

    def file(self, path: str) -> Path:
        """A path of the machine, as this one sees it."""
        return self.box.root / path.lstrip("/")

    def _write(self, path: str, text: str | bytes, mode: int = 0o644, owner: int = 0) -> None:
        real = self.file(path)
        real.parent.mkdir(parents=True, exist_ok=True)
        real.unlink(missing_ok=True)
        real.write_bytes(text.encode() if isinstance(text, str) else text)
        os.chown(real, owner, owner)
        real.chmod(mode)

    def _install(self) -> None:
        """What an image of Ubuntu has, as its first boot leaves it before user-data runs."""
        users = {
            "/etc/passwd": f"{USER}:x:{UID}:{UID}:Ubuntu:/home/{USER}:/bin/bash\n",
            "/etc/group": f"{USER}:x:{UID}:\n",
            "/etc/shadow": f"{USER}:*:19000:0:99999:7:::\n",
        }
        for path, line in users.items():
            mode = self.file(path).stat().st_mode & 0o777
            others = [
                each
                for each in self.file(path).read_text().splitlines()
                if not each.startswith(f"{USER}:") and f":{UID}:" not in each
            ]
            self._write(path, "\n".join([*others, line]), mode)
        self._write("/etc/hostname", f"{self.box.name}\n")
        own = f"{self.launch.private} {self.box.name}"
        self._write("/etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n{own}\n")
        self._write("/etc/resolv.conf", "")
        for program in _IMAGE.iterdir():
            folder = _PLACES.get(program.name, "sbin")
            self._write(f"/usr/{folder}/{program.name}", program.read_bytes(), 0o755)
        own_setpriv = shutil.which("setpriv")
        assert own_setpriv is not None
        # Whoever is in this group may become root, as `sudo` has it of its own.
        self._write("/usr/lib/skyward-sudo", Path(own_setpriv).read_bytes())
        os.chown(self.file("/usr/lib/skyward-sudo"), 0, UID)
        self.file("/usr/lib/skyward-sudo").chmod(0o4750)
        home = self.file(f"/home/{USER}")
        home.mkdir(mode=0o700)
        os.chown(home, UID, UID)
        if self.launch.disk:
            self._put_disk(self.launch.disk)
        # cloud-init does the rest for each new instance: docs.cloud-init.io, ssh and ssh_deletekeys.
        (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        os.chown(home / ".ssh", UID, UID)
        authorized = home / ".ssh/authorized_keys"
        before = authorized.read_text() if authorized.exists() else ""
        self._write(f"/home/{USER}/.ssh/authorized_keys", before + self.launch.key, 0o600, UID)
        for left in self.file("/etc/ssh").glob("ssh_host_*"):
            left.unlink()
        made = self._folder / f"{self.launch.instance}_host_key"
        for old in (made, made.with_name(f"{made.name}.pub")):  # it may come up again
            old.unlink(missing_ok=True)
        self.host_key = new_key(made, self.box.name)
        self._write(_KEY, made.read_bytes(), 0o600)
        self._write(f"{_KEY}.pub", self.host_key)
        config = "".join(f"{key} {value}\n" for key, value in _CONFIG.items())
        self._write("/etc/ssh/sshd_config", config)
        self.file("/run/sshd").mkdir(mode=0o755)
        os.mkfifo(self.file("/run/power"), 0o600)
        self.file("/run/systemd/system").mkdir(parents=True)
        self.file(_CONSOLE).touch()
        if self._disk:
            self._put_disk(self._disk)
            self.host_key = self.file(f"{_KEY}.pub").read_text()

    # ── its disk ────────────────────────────────────────────────────────────────────────

    def disk(self) -> bytes:
        """All that lies in the folders of its disk in which anybody writes, as a tar archive."""
        words = ["tar", "-C", str(self.box.root), "--one-file-system", "--ignore-failed-read"]
        done = subprocess.run([*words, "-cf", "-", *_ON_DISK], capture_output=True)
        assert done.stdout, done.stderr
        return done.stdout

    def _put_disk(self, disk: bytes) -> None:
        """It has this disk: its own of before, or that of its image."""
        shutil.rmtree(self.file(f"/home/{USER}"))
        for left in self.file("/etc/ssh").glob("ssh_host_*"):
            left.unlink()
        words = ["tar", "-C", str(self.box.root), "--same-owner", "--overwrite", "-xpf", "-"]
        done = subprocess.run(words, input=disk, capture_output=True)
        assert not done.returncode, done.stderr

    # ── its life ────────────────────────────────────────────────────────────────────────

    def boot(self) -> None:
        """Power, metadata, sshd, and then its user-data, which goes on when this returns."""
        launch = self.launch
        self.box.links(f"address add {imds.ADDRESS}/32 dev lo")
        self.metadata = imds.Metadata(
            self.box.pid,
            imds.of(
                instance=launch.instance,
                kind=launch.kind,
                image=launch.image,
                zone=launch.zone,
                public=launch.public,
                private=launch.private,
                spot=launch.spot,
                user_data=launch.user_data,
            ),
        )
        self._goes_on(self._hear_power)
        self.box.run("/usr/sbin/sshd", "-E", "/var/log/sshd.log")
        # It goes to the background before it has written by which number it is told to start anew.
        own = self.file(_CONFIG["PidFile"])
        until(lambda: self._is_over or (own.exists() and own.read_text()))
        if self._disk or launch.disk:
            self._start_units()
        # User data scripts run at the first boot alone.
        if self._disk:
            self.status = 0
        elif launch.user_data:
            self._goes_on(self._run_user_data)

    def _start_units(self) -> None:
        """Units that are enabled on its disk start at each boot."""
        wanted = self.file("/etc/systemd/system/multi-user.target.wants")
        # Links to units of this machine, which has its own systemd, are none of it.
        for unit in wanted.glob("*.service") if wanted.exists() else ():
            if (wanted.parent / unit.name).is_file():
                self.box.run("/usr/bin/systemctl", "start", unit.name)

    def _goes_on(self, what: Callable[[], None]) -> None:
        thread = threading.Thread(target=what, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _hear_power(self) -> None:
        """Wait until somebody on the machine powers it off."""
        words = self.box.entering("cat", "/run/power")
        said = subprocess.run(words, capture_output=True, text=True).stdout
        # Who has waited too long for that says it a second time.
        if said.startswith("off\n") and not self._is_over:
            self._ended()

    def _run_user_data(self) -> None:
        """As cloud-init does: docs.cloud-init.io, user data scripts."""
        script = self.launch.user_data
        if script.startswith(b"\x1f\x8b"):
            script = gzip.decompress(script)
        self._write(_SCRIPT, script, 0o700)
        if not script.startswith(b"#!"):
            self.file(_CONSOLE).write_text("user-data is no script: nothing was run\n")
            self.status = 1
            return
        words = ["/bin/sh", "-c", f'cd /; exec "{_SCRIPT}" >>{_CONSOLE} 2>&1 </dev/null']
        plain = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.status = subprocess.run(
            self.box.entering(*words), env=plain, capture_output=True
        ).returncode

    def console(self) -> str:
        """What its user-data wrote."""
        return self.file(_CONSOLE).read_text(errors="replace")

    def close(self) -> None:
        """Nothing of it is left."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if self.metadata is not None:
            self.metadata.close()
        for line in ("front", "back"):
            if hasattr(self, line):
                getattr(self, line).close()
        self.box.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
