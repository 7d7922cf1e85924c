"""Disks of EC2's instance store: which are taken, and that nothing else ever is.

The disks are loop devices of this machine, with links and models as udev and the kernel show those of EC2.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from bootstrap.local_shell import LocalShell

from skyward_nb.bootstrap import instance_store
from skyward_nb.providers import folders
from skyward_nb.words import scratch

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
MODEL = "Amazon EC2 NVMe Instance Storage        "
_TOOLS = ("losetup", "mkfs.ext4", "wipefs", "blkid", "lsblk")


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def why_not():
    if os.getuid() or not Path("/dev/loop-control").exists():
        return "loop devices take root"
    lacks = [each for each in _TOOLS if shutil.which(each) is None]
    return f"{', '.join(lacks)} is not installed" if lacks else ""


class Rented:
    """A machine with disks; all are given back at the end."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.links = folder / "by-id"
        self.sys = folder / "sys"
        self.at = folder / "scratch"
        self.links.mkdir()
        self.disks = []
        self.boot = folder / "boot"
        self.boot.write_text(f"{BOOT_ID} 12\n")
        monkeypatch.setattr(instance_store, "_LINKS", f"{self.links}/nvme-Amazon_")
        monkeypatch.setattr(instance_store, "_SYS", str(self.sys))
        monkeypatch.setattr(instance_store, "_BOOT", str(self.boot))
        monkeypatch.setattr(instance_store, "FOLDER", self.at)
        self.joined = folder / "joined"
        self.joined.mkdir()
        monkeypatch.setattr(instance_store, "JOINED", self.joined)
        monkeypatch.setattr(instance_store, "_PATIENCE", 2)
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.has("systemctl", "exit 1")

    def has(self, name, script):
        """A program of the machine, played."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def has_unit(self, state="active", system="running", then=":"):
        """The machine joins its disks by itself; `then` is run when it is asked for the state."""
        self.has(
            "systemctl",
            f"case $1 in is-active) {then}; echo {state} ;; is-system-running) echo {system} ;; esac",
        )

    def log_in_as(self, user):
        """The login is of this user, who may use sudo."""
        self.has("id", f"echo {user}")
        self.has("sudo", 'shift; exec "$@"')

    def disk(self, size=64, model=MODEL):
        """A disk of so many MiB, and its names."""
        number = len(self.disks)
        file = self.folder / f"disk{number}"
        with file.open("wb") as made:
            made.truncate(size << 20)
        disk = run("losetup", "--find", "--show", str(file))
        self.disks.append(disk)
        own = self.sys / Path(disk).name / "device"
        own.mkdir(parents=True)
        (own / "model").write_text(f"{model}\n")
        for end in ("", "_1"):
            (self.links / f"nvme-Amazon_AWS{number}{end}").symlink_to(disk)
        return disk

    def prepare(self):
        shell = LocalShell(self.folder, {"PATH": f"{self.bin}:{os.environ['PATH']}"})
        return asyncio.run(instance_store.prepare(shell))

    def source(self):
        with open("/proc/mounts") as mounts:
            found = [line.split() for line in mounts]
        return next((words[0] for words in found if words[1] == str(self.at)), "")

    def close(self):
        if self.source():
            run("umount", str(self.at))
        if self.joined.is_mount():
            run("umount", str(self.joined))
        for each in self.disks:
            run("losetup", "--detach", each)


@pytest.fixture
def rented(tmp_path, monkeypatch):
    if why := why_not():
        pytest.skip(why)
    made = Rented(tmp_path, monkeypatch)
    try:
        yield made
    finally:
        made.close()


def test_the_largest_free_disk_is_a_folder_of_whoever_logs_in(rented, monkeypatch):
    rented.disk(64)
    large = rented.disk(96)
    assert rented.prepare()
    assert rented.source() == large
    stat = rented.at.stat()
    assert (stat.st_uid, stat.st_mode & 0o777) == (os.getuid(), 0o700)
    (rented.at / "values").write_text("mine")
    assert rented.prepare()  # readied again: nothing is made anew
    assert (rented.at / "values").read_text() == "mine"
    monkeypatch.delenv("SKYWARD_SPILL_DIR", raising=False)
    monkeypatch.setattr(scratch, "FOLDER", rented.at)
    assert folders.spill_root().parent == rented.at


@pytest.mark.parametrize("what", ["ext4", "swap", "partitions", "mounted", "model"])
def test_what_somebody_may_need_is_never_taken(rented, what, tmp_path):
    disk = rented.disk(model="Amazon Elastic Block Store" if what == "model" else MODEL)
    place = tmp_path / "own"
    if what in ("ext4", "mounted"):
        run("mkfs.ext4", "-q", disk)
    if what == "swap":
        run("mkswap", disk)
    if what == "partitions":
        entry = struct.pack("<B3sB3sII", 0, b"\0\x20\x21", 0x83, b"\x08\x1f\x00", 2048, 4096)
        Path(disk).open("r+b").write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    if what == "mounted":
        place.mkdir()
        run("mount", disk, str(place))
    before = Path(rented.folder / "disk0").read_bytes() if what != "mounted" else b""
    try:
        assert not rented.prepare()
        assert not rented.source()
        if before:
            assert Path(rented.folder / "disk0").read_bytes() == before
    finally:
        if what == "mounted":
            run("umount", str(place))


@pytest.mark.parametrize("boot", ["", "0e0ea1b8-0000-4000-8000-000000000000 12\n"])
def test_a_machine_that_was_not_rented_or_booted_again_is_left_alone(rented, boot):
    rented.disk()
    rented.boot.write_text(boot)
    assert not rented.prepare()
    rented.boot.unlink()
    assert not rented.prepare()
    assert not rented.source()


def test_a_machine_without_such_disks_keeps_what_it_has(rented, monkeypatch):
    assert not rented.prepare()
    monkeypatch.delenv("SKYWARD_SPILL_DIR", raising=False)
    monkeypatch.setattr(scratch, "FOLDER", rented.at)
    assert rented.at not in folders.spill_root().parents


@pytest.mark.parametrize(
    ("state", "system"),
    [("active", "running"), ("activating", "starting"), ("inactive", "starting")],
)
def test_where_the_image_joins_the_disks_itself_ours_is_a_folder_of_that(rented, state, system):
    disk, free = rented.disk(), rented.disk(96)
    run("mkfs.ext4", "-q", disk)
    # As the machine boots: it is there when it was asked for the second time.
    then = f"[ -e {rented.folder}/asked ] && mount {disk} {rented.joined}; : >{rented.folder}/asked"
    rented.has_unit(state, system, then)
    rented.log_in_as(4711)
    assert rented.prepare()
    assert rented.source() == disk
    own = rented.joined / "skyward-4711"
    assert own.samefile(rented.at)
    assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (4711, 0o700)
    (rented.at / "values").write_text("mine")
    assert rented.prepare() and (rented.at / "values").read_text() == "mine"
    with open("/proc/mounts") as mounts:
        options = next(line.split()[3] for line in mounts if f" {rented.at} " in line)
    assert {"nosuid", "nodev"} <= {*options.split(",")}
    assert not run("wipefs", "-n", free)


@pytest.mark.parametrize("state", ["active", "inactive", "failed"])
def test_where_the_image_joins_disks_none_is_formatted(rented, state):
    disk = rented.disk()
    rented.has_unit(state)
    assert not rented.prepare()
    assert not rented.source() and not run("wipefs", "-n", disk)


def test_a_link_in_the_folder_that_the_image_makes_is_not_followed(rented, tmp_path):
    disk = rented.disk()
    run("mkfs.ext4", "-q", disk)
    run("mount", disk, str(rented.joined))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (rented.joined / f"skyward-{os.getuid()}").symlink_to(elsewhere)
    assert not rented.prepare() and not rented.source()


def test_a_try_that_was_cut_before_the_folder_was_the_logins_is_made_whole(rented):
    rented.disk()
    rented.log_in_as(4711)
    rented.has("chown", "exit 1")
    for _ in range(2):
        assert not rented.prepare(), "it is root's"
    assert rented.source() and rented.at.stat().st_uid == 0
    (rented.bin / "chown").unlink()
    assert rented.prepare()
    assert (rented.at.stat().st_uid, rented.at.stat().st_mode & 0o777) == (4711, 0o700)


def test_what_root_has_there_stays_roots(rented):
    disk = rented.disk()
    run("mkfs.ext4", "-q", disk)
    rented.at.mkdir()
    run("mount", disk, str(rented.at))
    (rented.at / "own").touch()
    rented.log_in_as(4711)
    assert not rented.prepare()
    assert rented.at.stat().st_uid == 0
