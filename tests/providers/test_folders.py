"""Folders of pools: made private, swept when nobody lives in them."""

import fcntl
import os
import stat

import pytest

from skyward_nb.providers import folders
from skyward_nb.words.errors import RuntimeFolderError


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "run"))
    yield tmp_path / "run"
    store = folders.store_root()
    for left in store.glob("*"):
        left.rmdir()
    if store.exists():
        store.rmdir()


def test_folders_are_private(root):
    made = folders.make_folders("p", "p-1")
    for folder in (made.runtime, made.store):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_dead_are_swept_and_the_living_are_not(root):
    pools = {
        name: folders.make_folders(name, name) for name in ("dead", "alive", "starting", "never")
    }
    for name in ("dead", "alive"):
        (pools[name].runtime / "lock").touch()
    os.utime(pools["never"].runtime, (0, 0))
    (folders.store_root() / "orphan").mkdir()
    with (pools["alive"].runtime / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folders.sweep()
        left = {path.name for path in root.iterdir()}
        assert left == {"alive", "starting"}
        assert {path.name for path in folders.store_root().iterdir()} == left


def test_a_path_too_long_for_a_socket_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / ("x" * 100)))
    with pytest.raises(RuntimeFolderError, match="too long"):
        folders.make_folders("p", "p-1")
    assert not folders.store_root().exists()


def test_a_file_in_the_way_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(RuntimeFolderError, match="SKYWARD_RUNTIME_DIR"):
        folders.make_folders("p", "p-1")
