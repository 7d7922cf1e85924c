"""What another user of this machine sees and reaches of a pool that runs, and what they may put in its way."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

import pools
import psutil
import pytest
from other_user import UID, as_another_user, needs_another_user

from skyward_nb.providers import folders
from skyward_nb.words.errors import RuntimeFolderError

pytestmark = needs_another_user
SECRET = "hunter2-of-the-owner"

LOOKS = """
import json, os, socket, sys
roots, pids, place = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
got = []
def tries(what, do):
    try:
        do()
    except OSError:
        return
    got.append(what)
for root in roots:
    tries(f"lists {root}", lambda: os.listdir(root))
    for name in ("lock", "pool.json", "log"):
        tries(f"reads {root}/{name}", lambda: open(f"{root}/{name}").read())
    tries(f"writes in {root}", lambda: (open(f"{root}/new", "w").close(), os.unlink(f"{root}/new")))
    for name in ("agent.sock", "values.sock"):
        line = socket.socket(socket.AF_UNIX)
        tries(f"connects to {root}/{name}", lambda: line.connect(f"{root}/{name}"))
for pid in pids:
    for name in ("environ", "mem", "maps"):
        tries(f"reads {name} of {pid}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    tries(f"lists descriptors of {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    tries(f"signals {pid}", lambda: os.kill(pid, 0))
words = b" ".join(open(f"/proc/{pid}/cmdline", "rb").read() for pid in pids)
for opened in os.listdir(place):
    for folder, folders, files in os.walk(f"{place}/{opened}"):
        paths = [f"{folder}/{name}" for name in (*folders, *files)]
        got += [f"reads {path}" for path in paths if os.access(path, os.R_OK)]
print(json.dumps([got, words.decode("utf-8", "replace")]))
"""


@pytest.fixture
def open_place(monkeypatch):
    """Folders below one that everybody may enter, as /tmp is."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="open-") as name:
        place = Path(name)
        place.chmod(0o1777)
        skyward = (f"SKYWARD_{each}_DIR" for each in ("STORE", "SPILL", "LOG", "STATE"))
        for variable in (*skyward, "TMPDIR"):
            (place / variable).mkdir()
            (place / variable).chmod(0o1777)
            monkeypatch.setenv(variable, str(place / variable))
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(place / "run"))
        yield place


def environment_of(pid):
    """Its variables; none of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def test_another_user_reads_and_reaches_nothing_of_a_pool(open_place, no_leaks):
    pool = pools.start(env={"TOKEN": SECRET})
    try:
        assert pools.values(pool, "import os\nwhat = base * 2\nprint(what)\nlen(what)", {"base": SECRET * 9000}) == [
            len(SECRET) * 18_000
        ] * 2  # fmt: skip
        mark = f"SKYWARD_RUNTIME_DIR={open_place / 'run'}".encode()
        pids = [
            each.pid
            for each in psutil.Process().children(recursive=True)
            if mark in environment_of(each.pid)
        ]
        assert len(pids) >= 4  # agent, forge, two ranks
        ours = [
            path
            for path in open_place.rglob("*")
            if path.name.startswith(("default", "skyward_nb"))
        ]
        ours += [open_place / "run", *open_place.joinpath("SKYWARD_LOG_DIR").iterdir()]
        assert any((each / "agent.sock").exists() for each in ours)
        where = json.dumps([*map(str, ours)]), json.dumps(pids), open_place
        reached, words = json.loads(as_another_user(LOOKS, *where, imports="import json"))
        assert not reached
        assert SECRET not in words
        by_owner, _ = json.loads(
            as_another_user(LOOKS, *where, imports="import json", uid=os.getuid())
        )
        for attempt in ("lists", "reads", "writes in", "connects to", "signals"):
            assert any(each.startswith(attempt) for each in by_owner)
        listening = {
            each.laddr
            for pid in pids
            for each in psutil.Process(pid).net_connections()
            if each.status == "LISTEN"
        }
        assert not listening  # without a framework nothing listens at a port
        names = Path("/proc/net/unix").read_text().split()
        own = (pool.pool_id, str(open_place))
        assert not [each for each in names if each[0] == "@" and any(word in each for word in own)]
    finally:
        pool.close()


@pytest.mark.parametrize("root", [folders.runtime_root, folders.store_root])
@pytest.mark.parametrize("how", ["folder", "open folder", "link", "file"])
def test_a_name_that_another_user_made_first_is_refused(root, how, open_place):
    if root is folders.store_root:
        folders.runtime_root().mkdir(mode=0o700)  # the store's name is made of what it is
    makes = {
        "folder": "os.mkdir(sys.argv[1], 0o700)",
        "open folder": "os.mkdir(sys.argv[1]); os.chmod(sys.argv[1], 0o777)",
        "link": "os.mkdir(sys.argv[1] + '-own'); os.symlink(sys.argv[1] + '-own', sys.argv[1])",
        "file": "open(sys.argv[1], 'w')",
    }
    assert not as_another_user(f"import os\n{makes[how]}", root())
    assert root().lstat().st_uid == UID
    with pytest.raises(
        RuntimeFolderError, match=r"belongs to another user|symbolic link|not a folder"
    ):
        folders.make_folders("p", "p-1")
    assert not [each for each in open_place.rglob("p-1*") if each.lstat().st_uid == os.getuid()]
