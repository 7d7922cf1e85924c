"""What this person has rented, on disk: written, and safely there, before a call that makes something.

Each pool has a folder with its `record.json` and its keys. It goes when all that the record names is
known to be gone; a record that stays behind says what may be left, and where.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import msgspec
import platformdirs
import psutil
from msgspec.structs import replace

from skyward_nb.system import processes

_RECORD = "record.json"
_USED = "used.jsonl"
_OWNER = "owner"
_TOKEN_LIMIT = 64
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MACHINE = Path("/etc/machine-id")
_ID = 32
State = Literal["launching", "up", "ending"]
Kind = Literal["group", "placement"]


class MakerProcess(msgspec.Struct, frozen=True):
    """The process that brings a pool up; `since` by no clock that may be set, where there is such a one."""

    pid: int
    since: float
    host: str
    boot: str = ""
    machine: str = ""

    @classmethod
    def this(cls) -> MakerProcess:
        """This process."""
        own = os.getpid()
        return cls(own, _started(own), socket.gethostname(), processes.boot(), machine_mark())

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this computer; a copy of one may have its name."""
        return self.host == socket.gethostname() and self.machine in ("", machine_mark())

    @property
    def may_live(self) -> bool:
        """Whether it is there, as far as can be told from here."""
        if not self.is_here:
            return True
        if _BOOT.exists():
            own = processes.ProcessIdentity(self.pid, round(self.since))
            return self.boot == processes.boot() and processes.lives(own)
        with contextlib.suppress(psutil.Error):
            return abs(psutil.Process(self.pid).create_time() - self.since) < 1
        return False


def _started(pid: int) -> float:
    """When a process was started: since the boot where the system tells that, else since 1970."""
    known = processes.known(pid)
    return psutil.Process(pid).create_time() if known is None else float(known.started)


class LaunchAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One call that may have launched machines: `token` makes it the same call however often it is sent.

    `count` is how many it asks for, `instances` are those that it is known to have launched; `over` when
    it is known that none runs.
    """

    token: str
    region: str
    zone: str
    type: str
    spot: bool = False
    count: int = 1
    at: float = 0.0
    instances: tuple[str, ...] = ()
    over: bool = False


class CreatedResource(msgspec.Struct, frozen=True):
    """Something beside machines that a pool has in a region, found by its name."""

    kind: Kind
    region: str
    name: str


class RunningInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance that runs; `price` in dollars an hour, `host_key` as a line of OpenSSH.

    `public` is where this side reaches it; without one, that is `private`, where the others do.
    """

    instance: str
    region: str
    zone: str
    type: str
    spot: bool = False
    price: float | None = None
    public: str | None = None
    private: str
    host_key: str

    @property
    def address(self) -> str:
        """Where it is logged in to."""
        return self.public or self.private


class RentalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that a pool has, or may have, with AWS; times in seconds since 1970.

    `deadline` is when its machines end by themselves at the latest, where there is such a time; `listing`
    the file that is there while somebody may attach to it, wherever who looks keeps such files.
    """

    pool_id: str
    name: str
    owner: str
    maker: MakerProcess
    created: float
    state: State = "launching"
    account: str = ""
    profile: str | None = None
    endpoint: str | None = None
    user: str = ""
    listing: str = ""
    deadline: float | None = None
    attempts: tuple[LaunchAttempt, ...] = ()
    made: tuple[CreatedResource, ...] = ()
    machines: tuple[RunningInstance, ...] = ()

    @property
    def regions(self) -> tuple[str, ...]:
        """Where something of it may be."""
        places = [*(each.region for each in self.attempts), *(each.region for each in self.made)]
        return tuple(dict.fromkeys(places))


class UsedRegion(msgspec.Struct, frozen=True):
    """A region in which something was made once, and by which credentials."""

    region: str
    profile: str | None
    endpoint: str | None


class RentalFolder:
    """The folder of one pool, and its record; what is noted is on disk when `note` returns."""

    def __init__(self, folder: Path, record: RentalRecord) -> None:
        self.folder: Path = folder
        self.record: RentalRecord = record

    @classmethod
    def begin(cls, record: RentalRecord) -> RentalFolder:
        """Begin a pool's record; raises OSError where it cannot be written."""
        folder = _root() / record.pool_id
        folder.mkdir(mode=0o700)
        entry = cls(folder, record)
        entry.note()
        return entry

    def note(self, **changes: Any) -> None:
        """Write the record down with these changes."""
        self.record = replace(self.record, **changes)
        write(self.folder / _RECORD, msgspec.json.format(msgspec.json.encode(self.record)))

    def attempt(self, attempt: LaunchAttempt) -> None:
        """Note an attempt before its call is sent, or what became of it."""
        attempts = {each.token: each for each in self.record.attempts}
        if attempt.token not in attempts:
            note_used(UsedRegion(attempt.region, self.record.profile, self.record.endpoint))
        attempts[attempt.token] = attempt
        self.note(attempts=tuple(attempts.values()))

    def make(self, made: CreatedResource) -> None:
        """Note what is about to be made."""
        if made not in self.record.made:
            note_used(UsedRegion(made.region, self.record.profile, self.record.endpoint))
            self.note(made=(*self.record.made, made))

    def gone(self, made: CreatedResource) -> None:
        """Note that something is no more."""
        self.note(made=tuple(each for each in self.record.made if each != made))

    def forget(self) -> None:
        """All of it is gone, and its keys open nothing any more."""
        # The record last: as long as it is there, somebody looks after the pool.
        for path in self.folder.glob("*"):
            if path.name != _RECORD:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def as_far_as_it_can() -> Generator[None]:
    """For notes that must keep nobody from ending machines: a disk that is full is no reason to let them run.

    A record that is gone is: raises FileNotFoundError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError:
        """What was to be noted is known to this process, and found out by the next."""


def pool_ids() -> set[str]:
    """The pools that have a record, even one that this version cannot read."""
    return {path.parent.name for path in _place().glob(f"*/{_RECORD}")}


def token_of(pool_id: str, number: int) -> str:
    """The token of a pool's attempt of this number; at most 64 signs of ASCII."""
    token = f"sky-{pool_id}-{number}"
    if len(token) > _TOKEN_LIMIT or not token.isascii():
        token = f"sky-{pool_id.encode().hex()[-48:]}-{number}"
    return token


def entries() -> list[RentalFolder]:
    """What there are records of."""
    found = (_read(path) for path in sorted(_place().glob(f"*/{_RECORD}")))
    return [each for each in found if each is not None]


def find(pool_id: str) -> RentalFolder | None:
    """The record of a pool, if there is one."""
    return _read(_place() / pool_id / _RECORD)


def owner() -> str:
    """Who rents, as tags say it: the person, the machine, and a mark of this state folder on this computer.

    A home that is copied, or that several computers share, has a mark for each: none takes machines that
    another one rents for its own.
    """
    path = _root() / "-".join(filter(None, (_OWNER, machine_mark())))
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    text = f"{getpass.getuser()}@{socket.gethostname()} {secrets.token_hex(6)}"
    new = path.with_name(f"{path.name}.{os.getpid()}")
    write(new, text.encode())
    # Of two that begin at once, one is the owner.
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(new)
    new.unlink()
    return path.read_text()


def machine_mark() -> str:
    """What this computer has and a copy of its disk is given anew; "" where no system says so.

    Not the id itself, which is nobody else's to know. Source: machine-id(5).
    """
    with contextlib.suppress(OSError):
        said = _MACHINE.read_bytes().strip()
        if len(said) == _ID:  # before the first boot there is another word, or nothing
            return hashlib.blake2b(said, digest_size=6, person=b"skyward_nb").hexdigest()
    return ""


def used() -> list[UsedRegion]:
    """Where something was made, ever: that is where to look for what nobody knows of."""
    found: dict[UsedRegion, None] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (_place() / _USED).read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                found[msgspec.json.decode(line, type=UsedRegion)] = None
    return list(found)


def note_used(place: UsedRegion) -> None:
    """Keep in mind that something is about to be made there."""
    if place in used():
        return
    handle = os.open(_root() / _USED, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(place) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file all or nothing, and have it on disk."""
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def age_of(record: RentalRecord) -> float:
    """Seconds since a pool was begun, by this machine's clock."""
    return time.time() - record.created


def _read(path: Path) -> RentalFolder | None:
    # One that another version wrote is nobody's to change.
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return RentalFolder(path.parent, msgspec.json.decode(path.read_bytes(), type=RentalRecord))
    return None


def _place() -> Path:
    """Where records lie, `SKYWARD_STATE_DIR` or the user's own, whether there are any or not."""
    asked = os.environ.get("SKYWARD_STATE_DIR")
    own = (
        Path(asked).expanduser().absolute() if asked else platformdirs.user_state_path("skyward_nb")
    )
    return own / "aws"


def _root() -> Path:
    root = _place()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root
