"""Records of rented resources on disk, each written before the call that makes the resource.

Each pool has a folder with its `record.json` and its keys, which is removed when all that the record names
is known to be gone; a remaining record says what may be left, and where.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import secrets
import shutil
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from skyward_nb.providers.maker_process import MakerProcess, machine_mark
from skyward_nb.providers.state_files import state_folder, write
from skyward_nb.words.decoding import from_json

_RECORD = "record.json"
PROVIDER = "aws"
_USED = "used.jsonl"
_OWNER = "owner"
_TOKEN_LIMIT = 64
_LOCK = "lock"
State = Literal["launching", "up", "stopping", "stopped", "ending"]
Kind = Literal["group", "placement", "address", "timer"]


class LaunchAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One call that may have launched machines; with its `token`, a repetition is the same call.

    It asks for `count` machines; `instances` are those known to be launched; `over`: known that none runs. It was first
    sent `at` a time, and last `repeated` at another, in seconds since 1970; 0 if once.
    """

    token: str
    region: str
    zone: str
    type: str
    spot: bool = False
    count: int = 1
    at: float = 0.0
    repeated: float = 0.0
    instances: tuple[str, ...] = ()
    over: bool = False


class CreatedResource(msgspec.Struct, frozen=True):
    """A resource of a pool other than a machine, found by its name; all Elastic IP addresses by the pool's id."""

    kind: Kind
    region: str
    name: str

    def __str__(self) -> str:
        return (
            f"Elastic IP addresses of {self.name}"
            if self.kind == "address"
            else f"{self.kind} {self.name}"
        )


class Warmth(msgspec.Struct, frozen=True, kw_only=True):
    """How a pool's machines are stopped at its end: for so many `seconds`, for pools with the same `needs`.

    `gigabytes` are those of all disks, at `price` dollars an hour for all, if it is known. While they are stopped,
    they end at `until`, in seconds since 1970.
    """

    seconds: float
    needs: str = ""
    gigabytes: int = 0
    price: float | None = None
    until: float | None = None


class RunningInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance that runs; `price` in dollars an hour, `host_key` as a line of OpenSSH.

    This side reaches it at `public`, or else at `private`; other machines at `private`.
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
        """The address for logins."""
        return self.public or self.private


class RentalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All resources that a pool has, or may have, with AWS; times in seconds since 1970.

    `deadline` is the latest end of its machines by themselves, if there is one; `listing` is the file that
    exists while somebody may attach to the pool. `tags` are the user's, `jump` is the way to its machines, `callers`
    the networks that the user named, `let_in` those that the pool's group lets in. `used_by` is the pool that has the
    machines now: that of `pool_id` (None), a later one, or none while they are stopped (""). `claimed` is when its end
    was, by the `maker`; 0 if it was not. With `replaces`, the pool's next run rents other machines for those it has lost,
    unless its client, the `maker`, has left it: `left_by` is who did last.
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
    tags: tuple[tuple[str, str], ...] = ()
    jump: str = ""
    callers: tuple[str, ...] = ()
    let_in: tuple[str, ...] = ()
    attempts: tuple[LaunchAttempt, ...] = ()
    made: tuple[CreatedResource, ...] = ()
    machines: tuple[RunningInstance, ...] = ()
    warmth: Warmth | None = None
    used_by: str | None = None
    claimed: float = 0.0
    replaces: bool = False
    left_by: MakerProcess | None = None

    @property
    def user_pool(self) -> str:
        """The id of the pool that has the machines now; "" while they are stopped."""
        return self.pool_id if self.used_by is None else self.used_by

    @property
    def is_ended_elsewhere(self) -> bool:
        """Whether another process, which may live, has claimed the end of its pool."""
        is_other = self.maker != MakerProcess.this() and self.maker.may_live
        return self.state == "stopping" and is_other

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions that may have resources of it."""
        places = [*(each.region for each in self.attempts), *(each.region for each in self.made)]
        return tuple(dict.fromkeys(places))


class UsedRegion(msgspec.Struct, frozen=True):
    """A region with resources at some time, and the credentials that made them."""

    region: str
    profile: str | None
    endpoint: str | None


class RentalFolder:
    """The folder of one pool, and its record, which is on disk when `note` returns."""

    def __init__(self, folder: Path, record: RentalRecord) -> None:
        self.folder: Path = folder
        self.record: RentalRecord = record

    @classmethod
    def begin(cls, record: RentalRecord) -> RentalFolder:
        """Begin a pool's record; raises OSError where it cannot be written."""
        folder = _root() / record.pool_id
        folder.mkdir(mode=0o700)
        entry = cls(folder, record)
        entry._write()
        return entry

    @property
    def is_there(self) -> bool:
        """Whether the record is on disk: once all that it names is gone, it is removed."""
        return (self.folder / _RECORD).exists()

    @property
    def written(self) -> float:
        """When the record was last written, in seconds since 1970; 0 where it is gone."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / _RECORD).stat().st_mtime
        return 0.0

    def note(self, **changes: Any) -> None:
        """Write the record down with these changes; raises FileNotFoundError where it is gone."""
        self.record = replace(self.record, **changes)
        with self._held():
            if not self.is_there:
                raise FileNotFoundError(f"the record of pool {self.record.pool_id} is gone")
            self._write()

    def _write(self) -> None:
        write(self.folder / _RECORD, msgspec.json.format(msgspec.json.encode(self.record)))

    @contextlib.contextmanager
    def _held(self) -> Generator[None]:
        """Have no other process write or remove the record; raises FileNotFoundError where its folder is gone."""
        handle = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(handle, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def attempt(self, attempt: LaunchAttempt) -> None:
        """Note an attempt before its call is sent, or its result."""
        attempts = {each.token: each for each in self.record.attempts}
        if attempt.token not in attempts:
            note_used(UsedRegion(attempt.region, self.record.profile, self.record.endpoint))
        attempts[attempt.token] = attempt
        self.note(attempts=tuple(attempts.values()))

    def make(self, made: CreatedResource) -> None:
        """Note a resource before it is made."""
        if made not in self.record.made:
            note_used(UsedRegion(made.region, self.record.profile, self.record.endpoint))
            self.note(made=(*self.record.made, made))

    def gone(self, made: CreatedResource) -> None:
        """Note that a resource is gone."""
        self.note(made=tuple(each for each in self.record.made if each != made))

    def claim(self, **changes: Any) -> bool:
        """Write down these changes if nobody has changed its state or user since it was read; of several processes, one succeeds."""
        with contextlib.suppress(FileNotFoundError), self._held():
            there = _read(self.folder / _RECORD)
            seen = self.record.state, self.record.used_by
            if there is not None and (there.record.state, there.record.used_by) == seen:
                self.record = replace(there.record, **changes)
                self._write()
                return True
        return False

    def claim_end(self) -> bool:
        """Claim it for the end of its pool: without agents that is listed no more, and a sweep takes it for lost, but for this."""
        return self.claim(state="stopping", maker=MakerProcess.this(), claimed=time.time())

    def forget(self) -> None:
        """Remove the folder of a pool whose resources are gone."""
        with contextlib.suppress(FileNotFoundError), self._held():
            # The record after others: while it exists, sweeps look after the pool. Who waits for the lock finds it gone.
            for path in self.folder.glob("*"):
                if path.name not in (_RECORD, _LOCK):
                    path.unlink(missing_ok=True)
            (self.folder / _RECORD).unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def as_far_as_it_can() -> Generator[None]:
    """For notes whose failure must not stop the end of machines: on a full disk, they are ended as well.

    If the record is gone, raises FileNotFoundError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError:
        """This process knows what was to be noted, and the next one finds it out."""


def pool_ids() -> set[str]:
    """The ids of pools with a record, even one that this version cannot read."""
    return {path.parent.name for path in state_folder(PROVIDER).glob(f"*/{_RECORD}")}


def token_of(pool_id: str, number: int) -> str:
    """The token of a pool's attempt of this number; at most 64 characters of ASCII."""
    token = f"sky-{pool_id}-{number}"
    if len(token) > _TOKEN_LIMIT or not token.isascii():
        token = f"sky-{pool_id.encode().hex()[-48:]}-{number}"
    return token


def entries() -> list[RentalFolder]:
    """All readable records."""
    found = (_read(path) for path in sorted(state_folder(PROVIDER).glob(f"*/{_RECORD}")))
    return [each for each in found if each is not None]


def find(pool_id: str) -> RentalFolder | None:
    """The record of the machines that a pool has now, if there is one."""
    own = _read(state_folder(PROVIDER) / pool_id / _RECORD)
    if own is not None and own.record.user_pool == pool_id:
        return own
    return next((each for each in entries() if each.record.user_pool == pool_id), None)


def owner() -> str:
    """The owner for tags: the user, the computer, and a mark of this state folder on this computer.

    Computers that share a home, or have copies of it, have different marks: none takes another one's
    machines for its own.
    """
    path = _root() / "-".join(filter(None, (_OWNER, machine_mark())))
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    text = f"{getpass.getuser()}@{socket.gethostname()} {secrets.token_hex(6)}"
    new = path.with_name(f"{path.name}.{os.getpid()}")
    write(new, text.encode())
    # Of two processes that begin at once, one sets the owner.
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(new)
    new.unlink()
    return path.read_text()


def used(name: str = _USED) -> list[UsedRegion]:
    """All regions that ever had resources: sweeps look there for machines without a record."""
    found: dict[UsedRegion, None] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (state_folder(PROVIDER) / name).read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                found[from_json(line, UsedRegion)] = None
    return list(found)


def note_used(place: UsedRegion, name: str = _USED) -> None:
    """Note a region before the first resource is made there."""
    if place in used(name):
        return
    handle = os.open(_root() / name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(place) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> RentalFolder | None:
    # A record of another version is left alone.
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        return RentalFolder(path.parent, from_json(path.read_bytes(), RentalRecord))
    return None


def _root() -> Path:
    root = state_folder(PROVIDER)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root
