"""Two machines that are rented once, and looked at: who runs there, by which key, and what does not get there."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

import pytest
from leaks import leaves_nothing
from pools import start, values

from skyward_nb.providers.aws import rental_records
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import AWSAccess

pytestmark = pytest.mark.timeout(300)
TOKEN = "IQoJb3JpZ2luX2VjEXAMPLETOKEN"
_FOLDERS = ("/dev/shm", "/home", "/run", "/tmp", "/var/lib/cloud", "/var/lib/skyward", "/var/tmp")


@pytest.fixture
def cloud(shared_cloud):
    return shared_cloud


@pytest.fixture(scope="module")
def pool(shared_cloud, account):
    """A pool of two machines, rented with credentials that have a token."""
    with pytest.MonkeyPatch.context() as patch, leaves_nothing():
        patch.setenv("AWS_SESSION_TOKEN", TOKEN)
        made = start(
            provider="aws",
            aws=AWSAccess(region="us-east-1", instance_type="c6i.large"),
            image=Image(interpreter=sys.executable),
        )
        try:
            yield made
        finally:
            made.close()
        shared_cloud.nothing_left()


def texts(machine):
    """All that processes of a machine were started with, and what lies in its files, by where.

    What it only sees of this machine, and cannot write, is not its own.
    """
    seen_there = {str(machine.file(each)) for each in (sys.prefix, sys.base_prefix)}
    for process in machine.processes():
        for part in ("environ", "cmdline"):
            # It may have ended meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield f"{process} {part}", machine.file(f"/proc/{process}/{part}").read_bytes()
    for folder in _FOLDERS:
        for place, within, names in os.walk(machine.file(folder)):
            within[:] = [each for each in within if f"{place}/{each}" not in seen_there]
            for path in (Path(place, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if stat.S_ISREG(path.lstat().st_mode):
                        yield str(path), path.read_bytes()


def test_each_machine_has_a_host_key_that_no_other_has(cloud, pool):
    (entry,) = rental_records.entries()
    known = [line.split()[::2] for line in (entry.folder / "known_hosts").read_text().splitlines()]
    shown = {
        each.instance: each.file("/etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[1]
        for each in cloud.machines
    }
    assert dict(known) == shown and len(set(shown.values())) == 2
    assert entry.record.state == "up"
    for each in cloud.machines:
        assert (
            "BEGIN OPENSSH PRIVATE KEY"
            in each.file("/var/lib/cloud/instance/user-data.txt").read_text()
        )
        assert each.file("/var/lib/skyward/lease").stat().st_uid == 1000


def test_no_credentials_get_to_a_machine(cloud, pool):
    secrets = [
        os.environ[f"AWS_{each}"].encode()
        for each in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    ]
    body = "import os\nmark = 'a-mark-of-this-test'\ndict(os.environ)"
    for environ in values(pool, body, {"os": os, "here": "as-it-is-sent"}):
        assert environ["WORLD_SIZE"] == "2"
        assert [name for name in environ if name.startswith("AWS_")] == []
        assert [each for each in secrets if each in repr(environ).encode()] == []
    assert cloud.calls[-1].key.encode() == secrets[0], "they are those that it was rented with"
    seen = 0
    for machine in cloud.machines:
        told = dict(texts(machine))
        seen += any(b"SKYWARD_POOL=" in text for text in told.values())
        assert any(b"BEGIN OPENSSH PRIVATE KEY" in text for text in told.values())
        found = [where for where, text in told.items() if any(each in text for each in secrets)]
        assert found == []
    assert seen == 2, "processes of the pool are looked at"


def test_a_cell_runs_on_machines_that_are_gone_afterwards(cloud, pool):
    told = values(
        pool, "import os, socket\n(os.environ['RANK'], os.getuid(), socket.gethostname())"
    )
    assert [(rank, uid) for rank, uid, _ in told] == [("0", 1000), ("1", 1000)]
    assert len({name for *_, name in told}) == 2
    pool.close()
    cloud.nothing_left()
    assert rental_records.entries() == []
