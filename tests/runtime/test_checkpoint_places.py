"""Where checkpoints are: folders and buckets of S3, the latter played by moto's server."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from later import Later, needs
from pools import request, values
from waiting import until

from skyward_nb.runtime import bounded_wait, checkpoint
from skyward_nb.runtime.checkpoint_places import place_at
from skyward_nb.words.checkpoints import VARIABLE

boto3 = Later("boto3")
moto_server = Later("moto.server")
PARTS = [b"head", memoryview(bytearray(20_000_000)), b"", b"tail"]


@pytest.fixture
def folder(tmp_path):
    return place_at(str(tmp_path / "a" / "b"))


def test_a_file_is_there_as_a_whole_and_is_private_to_who_reads_it(folder):
    folder.write("key", "rank-0.names", PARTS, None)
    data = folder.read("key", "rank-0.names")
    assert bytes(data) == b"".join(PARTS)
    os.truncate(next(folder._folder.rglob("rank-0.names")), 0)
    assert bytes(data) == b"".join(PARTS), "the file may go"
    folder.write("key", "rank-0.names", PARTS, None)
    data[0] = 0
    assert bytes(folder.read("key", "rank-0.names")[:4]) == b"head"
    assert folder.files() == {"key": ["rank-0.names"]}
    folder.remove("key")
    folder.remove("key")
    assert folder.files() == {}


def test_what_is_not_written_in_time_is_not_there(folder):
    folder.write("key", "rank-0.names", [b"before"], None)
    with pytest.raises(TimeoutError, match=r"0 B of 20 MB were written"):
        folder.write("key", "rank-0.names", PARTS, time.time() - 1)
    assert folder.files() == {"key": ["rank-0.names"]}
    assert bytes(folder.read("key", "rank-0.names")) == b"before"


def test_without_room_it_is_told(folder, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="has 1 kB free, and 20 MB are needed"):
        folder.write("key", "rank-0.names", PARTS, None)


@pytest.mark.parametrize("which", ["folder", "key", "file", "link"])
def test_what_others_may_have_written_is_not_read(folder, tmp_path, which):
    folder.write("key", "name", [b"x"], None)
    own = tmp_path / "a" / "b"
    path = {"folder": own, "key": own / "key"}.get(which, own / "key" / "name")
    if which == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.chmod(0o722)
    with pytest.raises(OSError, match=r"may have been written by others|symbolic links"):
        folder.read("key", "name")


def test_a_place_that_hangs_has_a_limit(tmp_path, monkeypatch):
    """Opening a FIFO waits for somebody else, as opening a file of a server that is gone does."""
    key = tmp_path / "other-1a2b3c-g0001-r000001-1"
    key.mkdir()
    os.mkfifo(key / "rank-0.json")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(bounded_wait, "_ANSWERS_WITHIN", 0.2)
    with pytest.raises(TimeoutError, match=r"has not answered for 0.2 s: .* may hang \(NFS"):
        checkpoint.look()
    os.close(os.open(key / "rank-0.json", os.O_WRONLY))  # it goes on, and ends
    (thread,) = [each for each in threading.enumerate() if each.name == "skyward-checkpoint"] or [
        None
    ]
    if thread is not None:
        thread.join(60)


class Slow:
    """A place by whose clock each answer takes a while; `read` has what it was asked for."""

    def __init__(self, where):
        self._place = place_at(where)
        self.asked = []
        self._now = 0.0
        self._looks = 0

    def monotonic(self):
        self._looks += threading.current_thread() is threading.main_thread()
        return self._now

    def files(self, *given):
        return self._place.files(*given)

    def read(self, key, name):
        self.asked.append(key)
        self._now += 0.04
        seen = self._looks
        until(lambda: self._looks > seen + 1)  # who waits for the answer has seen how late it is
        return self._place.read(key, name)


@pytest.fixture
def slow(tmp_path, monkeypatch):
    made = Slow(str(tmp_path))
    monkeypatch.setattr(checkpoint, "_place", lambda: made)
    monkeypatch.setattr(bounded_wait, "time", made)
    monkeypatch.setattr(bounded_wait, "_ANSWERS_WITHIN", 0.05)
    return made


def test_the_limit_is_for_each_answer_of_a_place_not_for_all(slow, tmp_path, monkeypatch):
    for run in range(5):
        key = tmp_path / f"other-1a2b3c-g0001-r00000{run}-1"
        key.mkdir()
        (key / "rank-0.json").write_text("{}")
    assert checkpoint.look().count("other-1a2b3c") == len(slow.asked) == 5
    monkeypatch.setattr(checkpoint, "instance_info", lambda: SimpleNamespace(job_id="pool"))
    monkeypatch.setattr(checkpoint, "_world_size", lambda _: 5)
    assert checkpoint.probed() == "[0,1,2,3,4]"


def test_where_other_pools_checkpoints_are_not_wanted_they_are_not_read(slow, tmp_path):
    for pool in ("one", "other"):
        key = tmp_path / f"{pool}-1a2b3c-g0001-r000001-1"
        key.mkdir()
        (key / "rank-0.json").write_text("{}")
    found = checkpoint.look("one-1a2b3c")
    assert "one-1a2b3c" in found and "other" not in found
    assert slow.asked == ["one-1a2b3c-g0001-r000001-1"]


def test_only_files_of_this_beginning_are_listed(folder):
    for key in ("one-g1", "one-g2", "other-g1"):
        folder.write(key, "rank-0.names", [b"x"], None)
    assert [*folder.files("one-g")] == ["one-g1", "one-g2"]


# ── S3 ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bucket(monkeypatch):
    """An empty bucket, and the variables by which ranks find it."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    env = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="kept")
    yield env
    server.stop()


@needs("boto3", "moto", "flask")
def test_a_bucket_has_the_same_files(bucket):
    place = place_at("s3://kept/some/where")
    assert place.files() == {}
    place.write("key", "rank-0.names", PARTS, None)
    place.write("key", "rank-0.json", [b"{}"], None)
    data = place.read("key", "rank-0.names")
    assert bytes(data) == b"".join(PARTS) and not data.readonly
    with pytest.raises(TimeoutError, match="there was not time enough"):
        place.write("late", "rank-0.names", PARTS, time.time() - 1)
    assert place.files() == {"key": ["rank-0.json", "rank-0.names"]}
    place.write("key2", "rank-0.names", [b"x"], None)
    asked = []
    place._client.meta.events.register(
        "before-parameter-build.s3.ListObjectsV2",
        lambda params, **_: asked.append(params["Prefix"]),
    )
    place.remove("key")
    assert asked == ["some/where/key/"], "not what others have there"
    assert place.files("key") == {"key2": ["rank-0.names"]} and asked[1:] == ["some/where/key"]
    place.remove("key2")
    assert place.files() == {}
    with pytest.raises(OSError, match=r"s3://other: .*NoSuchBucket.*instance_profile="):
        place_at("s3://other").files()


@needs("boto3", "moto", "flask")
def test_a_pool_goes_on_from_a_bucket(bucket, make):
    text = "import skyward_nb as sky\nx = [sky.rank()]\nsky.checkpoint()"
    first = make(checkpoint="s3://kept/dir", env=bucket)
    assert values(first, text)[0].startswith(f"s3://kept/dir/default/{first.pool_id}")
    first.close()
    second = make(checkpoint="s3://kept/dir", env=bucket, resume=True)
    assert values(second, "x") == [[0], [1]]


def test_without_boto3_it_is_named(monkeypatch, make):
    pool = make(nodes=1, checkpoint="s3://kept/dir")
    text = "import sys, skyward_nb as sky\nsys.modules['boto3'] = None\nsky.checkpoint()"
    (end,) = pool.run(request(pool, text), lambda _: None).failed
    assert end.failure.message == (
        "s3://kept/dir/default needs the package boto3 on the ranks: add pip=boto3 to the pool's options"
    )
    assert os.environ.get("SKYWARD_KEPT_NAMES") is None


def test_two_ranks_that_remove_the_same_checkpoint_do_not_mind_one_another(tmp_path, monkeypatch):
    """The other one is done as this one lists the folder: seen as a FileNotFoundError, told of a place that was good."""
    place = place_at(str(tmp_path))
    place.write("p-g0001-r000001-1", "rank-0.names", [b"."], None)

    def listed(folder, _):
        shutil.rmtree(folder)
        return os.scandir(folder)

    monkeypatch.setattr(Path, "glob", listed)
    place.remove("p-g0001-r000001-1")
    assert not place.files()
