"""Buckets as folders: what s3fs is told, and what is seen through it of a server of S3."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from bootstrap.homes import LocalShell

from skyward_nb.bootstrap import volumes
from skyward_nb.bootstrap.requirements import image_of
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.volume import Volume


def why_not() -> str:
    if os.getuid() or not Path("/dev/fuse").exists() or shutil.which("s3fs") is None:
        return "mounting takes root, /dev/fuse and s3fs: apt-get install s3fs"
    return ""


def test_what_s3fs_is_told():
    volume = Volume(bucket="my-data", mount="/data/", prefix="/iris/")
    words = volumes._words(volume, 2, endpoint=None, has_role=True)
    assert (words["whole"], words["prefix"], words["mount"]) == (
        "/mnt/skyward/2-my-data", "iris", "/data",
    )  # fmt: skip
    assert words["options"] == "allow_other,iam_role=auto,ro" and not words["writes"]
    written = Volume(bucket="my-data", mount="/data", read_only=False)
    words = volumes._words(written, 0, endpoint="http://there", has_role=False)
    assert words["writes"]
    assert words["options"] == (
        "allow_other,public_bucket=1,url=http://there,use_path_request_style"
    )


def test_machines_get_what_mounts_them():
    assert image_of(PoolSpec()).apt == ()
    assert image_of(PoolSpec(volumes=(Volume(bucket="abc", mount="/data"),))).apt == ("s3fs",)


@pytest.fixture
def s3(monkeypatch):
    if why := why_not():
        pytest.skip(why)
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    there = server.ThreadedMotoServer("127.0.0.1", 0)
    there.start()
    host, port = there.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    client.create_bucket(Bucket="sky-test", ACL="public-read-write")
    client.put_object(Bucket="sky-test", Key="iris/a.csv", Body=b"1,2", ACL="public-read")
    yield client
    for number in range(2):
        whole = f"/mnt/skyward/{number}-sky-test"
        subprocess.run(["umount", whole], check=False, capture_output=True)
        shutil.rmtree(whole, ignore_errors=True)
        Path(f"/var/log/skyward-s3fs-{number}.log").unlink(missing_ok=True)
    there.stop()


@pytest.mark.extensive
def test_a_bucket_is_a_folder_that_is_read_and_written(s3, tmp_path):
    shell = LocalShell(tmp_path)
    data = Volume(bucket="sky-test", mount=str(tmp_path / "data"), prefix="iris")
    runs = Volume(bucket="sky-test", mount=str(tmp_path / "runs"), prefix="runs/1", read_only=False)

    def mount(*given):
        url = s3.meta.endpoint_url
        asyncio.run(volumes.mount(shell, given, endpoint=url, has_role=False))

    for _ in range(2):  # a machine that is readied again has them already
        mount(data, runs)
    assert (tmp_path / "data/a.csv").read_text() == "1,2"
    with pytest.raises(OSError, match="Read-only"):
        (tmp_path / "data/b.csv").touch()
    (tmp_path / "runs/model.txt").write_text("trained")
    assert s3.get_object(Bucket="sky-test", Key="runs/1/model.txt")["Body"].read() == b"trained"
    with pytest.raises(HostNotReady, match="nothing below this prefix"):
        mount(Volume(bucket="sky-test", mount=str(tmp_path / "none"), prefix="none"))
    (tmp_path / "own").write_text("")
    with pytest.raises(HostNotReady, match="something else is there already"):
        mount(Volume(bucket="sky-test", mount=str(tmp_path / "own")))
