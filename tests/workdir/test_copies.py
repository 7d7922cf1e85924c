"""A working folder and its copy: sent by content, changed files alone, results kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from skyward_nb.store.blobs import digest_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.folder_entry import FilePart, FolderEntry
from skyward_nb.workdir import scan as scanning
from skyward_nb.workdir.machine_folder import MachineFolder
from skyward_nb.workdir.scan import scan


class Pair:
    """A folder here, and its copy; `send` tells the names of the files whose contents went."""

    def __init__(self, folder: Path) -> None:
        self.most = 1000
        self.here = folder / "project"
        self.here.mkdir()
        self.machine = MachineFolder(folder / "copies", "project-1")
        self.there = self.machine.path

    def write(self, name: str, text: str = "") -> Path:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def send(self) -> list[str]:
        found = scan(self.here)
        lacking, is_current = self.machine.lacking(found.entries.values())
        contents, sent = {}, []
        for parts, data in [*found.contents(lacking, self.most, lambda: None)]:
            whole, at = b"".join(data), 0
            for each, (digest, size) in zip(parts, found.packed(parts), strict=True):
                contents.setdefault(digest, []).append(whole[at : at + size])
                at += size
                sent.append(os.fsdecode(each.path))
        self.changes = self.machine.update(found.entries.values(), contents.get)
        assert not (is_current and (lacking or self.changes))
        return sent

    def files(self) -> dict[str, str]:
        return {
            os.path.relpath(path, self.there): path.read_text()
            for path in self.there.rglob("*")
            if path.is_file() and not path.is_symlink()
        }


@pytest.fixture
def pair(tmp_path) -> Pair:
    return Pair(tmp_path)


def test_only_what_changed_is_sent(pair):
    pair.write("main.py", "print(1)")
    pair.write("lib/part.py", "x = 1")
    pair.write("empty")
    assert sorted(pair.send()) == ["empty", "lib/part.py", "main.py"]
    assert pair.files() == {"main.py": "print(1)", "lib/part.py": "x = 1", "empty": ""}
    assert pair.send() == [] and pair.changes == 0
    pair.write("lib/part.py", "x = 2")
    assert pair.send() == ["lib/part.py"] and pair.changes == 1
    os.utime(pair.here / "main.py", (1, 1))
    assert pair.send() == [] and pair.changes == 0


def test_a_large_file_goes_in_parts(pair, monkeypatch):
    read = list[int]()
    piece = scanning._piece

    def noting(file, size):
        read.append(size)
        return piece(file, size)

    monkeypatch.setattr(scanning, "_STEP", 4)
    monkeypatch.setattr(scanning, "_piece", noting)
    pair.most = 4
    pair.write("large", "0123456789").chmod(0o600)
    pair.write("small", "ab")
    assert pair.send() == ["large", "large", "large", "small"]
    assert pair.files() == {"large": "0123456789", "small": "ab"} and max(read) == 4
    pair.write("large", "9876543210")
    pair.send()
    assert pair.files()["large"] == "9876543210"


def test_a_large_file_that_changes_goes_as_it_was_read(pair):
    path, last = pair.write("large", "0123456789"), pair.write("last", "x")
    found = scan(pair.here)
    wanted = [each.content for each in found.entries.values()]
    parts = found.contents(wanted, 4, lambda: None)
    read = [next(parts)]
    path.write_text("....other")
    last.unlink()
    read += parts
    assert b"".join(part for _, data in read for part in data) == b"0123other"
    assert found.changed == ["large"] and found.entries.keys() == {b"large"}
    assert found.entries[b"large"].content == digest_of([b"0123other"])
    path.write_text("0123456789")
    again = scan(pair.here)
    path.write_text("")
    assert [*again.contents([again.entries[b"large"].content], 4, lambda: None)] == [
        ((FilePart(b"large", 0, 0),), [b""])
    ]


def test_equal_contents_are_sent_once(pair):
    for name in "abc":
        pair.write(name, "the same")
    assert len(pair.send()) == 1
    assert set(pair.files().values()) == {"the same"}


def test_renames_and_swaps_send_nothing(pair):
    pair.write("a", "first")
    pair.write("b", "second")
    pair.send()
    (pair.here / "a").rename(pair.here / "c")
    (pair.here / "b").rename(pair.here / "a")
    (pair.here / "c").rename(pair.here / "b")
    assert pair.send() == []
    assert pair.files() == {"a": "second", "b": "first"}
    (pair.here / "b").unlink()
    (pair.here / "new").mkdir()
    (pair.here / "a").rename(pair.here / "new" / "a")
    assert pair.send() == []
    assert pair.files() == {"new/a": "second"}


def test_links_modes_times_and_odd_names(pair):
    odd = "two words\nand a line"
    pair.write(odd, "odd").chmod(0o755)
    os.utime(pair.here / odd, ns=(5, 7))
    (pair.here / os.fsdecode(b"not\xffutf8")).write_text("bytes")
    pair.write("data/x", "x")
    (pair.here / "inner").symlink_to(pair.here / "data")
    (pair.here / "out").symlink_to("/nowhere/at/all")
    (pair.here / "void").mkdir()
    pair.send()
    there = (pair.there / odd).stat()
    assert stat.S_IMODE(there.st_mode) == 0o755 and there.st_mtime_ns == 7
    assert (pair.there / os.fsdecode(b"not\xffutf8")).read_text() == "bytes"
    assert str((pair.there / "inner").readlink()) == "data"
    assert str((pair.there / "out").readlink()) == "/nowhere/at/all"
    assert (pair.there / "void").is_dir()
    (pair.here / "inner").unlink()
    pair.write("inner", "a file now")
    (pair.here / odd).chmod(0o600)
    assert pair.send() == ["inner"]
    assert pair.files()["inner"] == "a file now"
    assert stat.S_IMODE((pair.there / odd).stat().st_mode) == 0o600


def test_results_stay_and_a_snapshot_is_not_sent_over(pair):
    pair.write("snapshot", "epoch 0")
    pair.write("runs/.keep")
    pair.write("old/one", "1")
    pair.send()
    (pair.there / "snapshot").write_text("epoch 5")
    (pair.there / "runs" / "model.pt").write_text("weights")
    (pair.there / "old" / "result").write_text("r")
    for name in ("runs/.keep", "old/one"):
        (pair.here / name).unlink()
    (pair.here / "old").rmdir()
    assert pair.send() == []
    assert pair.files() == {"snapshot": "epoch 5", "runs/model.pt": "weights", "old/result": "r"}
    pair.write("snapshot", "epoch 0 again")
    assert pair.send() == ["snapshot"]
    assert pair.files()["snapshot"] == "epoch 0 again"


def test_what_a_script_has_removed_comes_again(pair):
    pair.write("data", "x")
    pair.send()
    (pair.there / "data").unlink()
    assert pair.send() == ["data"]


def test_results_that_were_brought_here_are_not_sent_back(pair):
    pair.write("main.py")
    pair.send()
    (pair.there / "model").write_text("weights")
    (pair.there / "model").chmod(0o644)
    pair.write("model", "weights").chmod(0o644)
    assert pair.send() == [] and pair.changes == 0
    assert pair.files()["model"] == "weights"
    (pair.here / "model").unlink()
    assert pair.send() == [] and pair.files() == {"main.py": ""}


def test_a_folder_of_results_where_a_file_is_to_be(pair):
    pair.write("main.py")
    pair.send()
    (pair.there / "runs").mkdir()
    (pair.there / "runs" / "model").write_text("weights")
    pair.write("runs", "a file")
    with pytest.raises(OSError, match="runs is a file here, and on the machine a folder"):
        pair.send()
    assert pair.files() == {"main.py": "", "runs/model": "weights"}


def test_a_content_that_did_not_come_changes_nothing(pair):
    pair.write("main.py", "1")
    pair.send()
    pair.write("main.py", "2")
    pair.write("more", "3")
    with pytest.raises(OSError, match=r"the content of main.py did not come"):
        pair.machine.update(scan(pair.here).entries.values(), {}.get)
    assert pair.files() == {"main.py": "1"}
    assert not list(pair.there.parent.glob("*.new"))


def test_a_file_that_changes_while_it_is_sent(pair, monkeypatch):
    path = pair.write("log", "1")
    found = scan(pair.here)
    lacking, _ = pair.machine.lacking(found.entries.values())
    path.write_text("12")
    ((parts, data),) = found.contents(lacking, 1 << 20, lambda: None)
    assert data == [b"12"] and found.packed(parts) == ((digest_of([b"12"]), 2),)
    assert found.changed == []

    read = scanning._read
    turns = iter("abcdef")

    def restless(*args, **how):
        path.write_text(next(turns))
        return read(*args, **how)

    monkeypatch.setattr(scanning, "_read", restless)
    ((parts, data),) = found.contents([found.entries[b"log"].content], 9, lambda: None)
    assert found.changed == ["log"]
    ((content, size),) = found.packed(parts)
    assert content == digest_of(data) == found.entries[b"log"].content and size == 1
    path.unlink()
    monkeypatch.setattr(scanning, "_read", read)
    assert list(found.contents([content], 9, lambda: None)) == []
    assert found.entries == {}


@pytest.mark.parametrize("path", [b"../x", b"/etc/x", b"a/../../x", b"", b"a//b", b"a\0b", b"."])
def test_no_path_leads_out_of_the_copy(pair, path):
    bad = FolderEntry(path, 0o644, 1, 0, "0" * 32)
    with pytest.raises(OSError, match="is not a path in a folder"):
        pair.machine.update([bad], {"0" * 32: b"x"}.get)
    with pytest.raises(OSError, match="is not a path in a folder"):
        list(pair.machine.read([FilePart(path, 0, 1)]))
    for key in ("..", "a/b", ".hidden", ""):
        with pytest.raises(OSError, match="is not the name of a folder"):
            MachineFolder(pair.there.parent, key)


def test_a_link_of_a_script_is_no_way_out(pair, tmp_path):
    pair.write("data/x", "x")
    pair.send()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("theirs")
    (pair.there / "data" / "x").unlink()
    (pair.there / "data").rmdir()
    (pair.there / "data").symlink_to(outside)
    pair.write("data/x", "y")
    pair.send()
    assert (outside / "x").read_text() == "theirs"
    assert not (pair.there / "data").is_symlink() and pair.files() == {"data/x": "y"}


def test_too_large_is_said_before_anything_is_read(pair, monkeypatch):
    pair.write("main.py", "x")
    with (pair.here / "train.bin").open("wb") as file:
        file.truncate(3_000_000_000)
    with pytest.raises(OptionError) as raised:
        scan(pair.here)
    assert f"{pair.here} has 3 GB (train.bin 3 GB, main.py 1 B), and more than 1 GB" in str(
        raised.value
    )
    assert ".skyignore" in str(raised.value) and "folder=all" in str(raised.value)
    pair.write(".skyignore", "*.bin")
    assert sorted(scan(pair.here).entries) == [b".skyignore", b"main.py"]
    monkeypatch.setattr(scanning, "MOST_ENTRIES", 1)
    with pytest.raises(OptionError, match="more than 1 files and folders"):
        scan(pair.here)
    assert len(scan(pair.here, takes_all=True).entries) == 2


def test_what_cannot_be_read_is_named(pair):
    with pytest.raises(OptionError, match="there is no folder"):
        scan(pair.here / "nowhere")
    os.mkfifo(pair.here / "pipe")
    assert scan(pair.here).entries == {}
