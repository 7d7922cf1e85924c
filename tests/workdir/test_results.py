"""Results of machines: which are brought, and that nothing else is written here."""

from __future__ import annotations

import os
import stat

import pytest

from skyward_nb.store.blobs import digest_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.folder_entry import FolderEntry
from skyward_nb.workdir.patterns import PathPatterns, read_pattern
from skyward_nb.workdir.result_files import FoundResult, ResultFolder, results


def a_file(path: str, text: bytes = b"x") -> FolderEntry:
    return FolderEntry(path.encode(), 0o640, len(text), 7, digest_of([text]))


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("runs/*.pt", "runs/a.pt", True),
        ("runs/*.pt", "runs/deep/a.pt", False),
        ("**/*.pt", "a.pt", True),
        ("**/*.pt", "runs/deep/a.pt", True),
        ("runs", "runs/deep/a.pt", True),
        ("runs", "runs2/a", False),
        ("runs/**", "runs/a", True),
        ("a[0-9]", "a7", True),
        ("two words\n*", "two words\nx", True),
        ("*", "runs/a", True),
    ],
)
def test_patterns(pattern, path, matches):
    assert PathPatterns([pattern])(path) is matches


@pytest.mark.parametrize("text", ["/etc/passwd", "../x", "a/../../x", "~/x", ".", ""])
def test_patterns_stay_in_the_folder(text):
    with pytest.raises(OptionError, match="such as fetch=runs"):
        read_pattern("fetch", text)
    assert read_pattern("fetch", "./runs//a/") == "runs/a"


def test_the_head_has_the_name_and_others_theirs():
    found = results(
        {
            0: [a_file("runs/a.pt"), a_file("runs/same")],
            2: [a_file("runs/a.pt", b"other"), a_file("runs/same"), a_file("runs/own")],
        },
        ["runs/*"],
    )
    assert [(each.node, each.path) for each in found] == [
        (0, "runs/a.pt"),
        (0, "runs/same"),
        (2, "runs/a.node2.pt"),
        (2, "runs/own"),
    ]


def test_results_of_two_machines_never_share_a_path():
    found = results(
        {
            0: [a_file("m.pt"), a_file("m.node1.pt")],
            1: [a_file("m.pt", b"other"), a_file("m.node1.2.pt", b"own")],
        },
        ["*"],
    )
    paths = {(each.node, each.entry.name): each.path for each in found}
    assert paths[1, "m.pt"] == "m.node1.3.pt"
    assert len({*paths.values()}) == len(paths) == 4


@pytest.mark.parametrize(
    "path", ["main.py", ".git/hooks/pre-commit", "../x", "runs/../main.py", "/etc/x"]
)
def test_what_was_not_asked_for_is_not_taken(path):
    assert results({0: [a_file(path)]}, ["runs/*"]) == ()


def test_a_machine_sets_no_bits_but_permissions(tmp_path):
    here = ResultFolder(tmp_path)
    found = FoundResult(0, FolderEntry(b"a", 0o6755, 0, 7, digest_of([])), "a")
    with here.receiving(found):
        pass
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


def test_a_file_takes_its_place_when_it_is_complete(tmp_path):
    here, found = ResultFolder(tmp_path), FoundResult(0, a_file("runs/a", b"abc"), "runs/a")
    with here.receiving(found) as coming:
        coming.write(memoryview(b"ab"))
    assert list((tmp_path / "runs").iterdir()) == []
    with here.receiving(found) as coming:
        coming.write(memoryview(b"ab"))
        coming.write(memoryview(b"c"))
    path = tmp_path / "runs/a"
    assert path.read_bytes() == b"abc" and path.stat().st_mtime_ns == 7
    assert here.has(found)
    assert not here.has(FoundResult(0, a_file("runs/a", b"abd"), "runs/a"))


@pytest.mark.parametrize(
    ("path", "target", "is_inside"),
    [
        ("runs/last", "a.pt", True),
        ("runs/last", "../main.py", True),
        ("runs/last", "../../x", False),
        ("runs/last", "/etc/passwd", False),
        ("last", "runs/../../x", False),
        ("here", ".", True),
        ("here/last", "../x", False),
    ],
)
def test_links_stay_in_the_folder(tmp_path, path, target, is_inside):
    root = tmp_path / "project"
    (root / "runs").mkdir(parents=True)
    if path.startswith("here/"):
        (root / "here").symlink_to(".")
    found = FoundResult(0, FolderEntry(path.encode(), target=target.encode()), path)
    here = ResultFolder(root)
    if is_inside:
        here.make(found)
        assert str((root / path).readlink()) == target and here.has(found)
    else:
        with pytest.raises(PermissionError, match="out of the folder"):
            here.make(found)
        assert not os.path.lexists(root / path)
