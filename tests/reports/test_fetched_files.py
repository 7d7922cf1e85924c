"""What a script's run asks to be brought: also by another client, and by `%sky fetch`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from skyward_nb.notebook import script_verbs
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.pool.folder_transfer import BroughtFiles
from skyward_nb.reports.fetched_files import fetch_files
from skyward_nb.reports.scripts import Script
from skyward_nb.words.folder_entry import FolderError
from skyward_nb.words.spec import PoolSpec
from skyward_nb.workdir.working_folder import WorkingFolder, key_of

SPEC = PoolSpec(provider="ssh", name="train")


def test_another_client_learns_which_files_of_which_folder_are_to_be_brought(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("main.py").write_text("")
    script = Script(Path("main.py"))
    card = script.request((0,), CellOptions(fetch=("runs/*",)), SPEC).card
    key = key_of(tmp_path, "train")
    assert (card.root, card.folder, card.fetch) == (str(tmp_path), key, ("runs/*",))
    card = script.request((0,), CellOptions(folder="none"), SPEC).card
    assert (card.root, card.folder, card.fetch) == ("", "", ())


def test_a_folder_that_is_not_ours_is_named_with_what_to_type():
    folder = WorkingFolder(Path("/proj"), "proj-1", fetch=("a", "b"), not_ours=True)
    (note,), lacks_some = fetch_files(SimpleNamespace(), folder, [0], lambda _: None)  # pyright: ignore[reportArgumentType]
    assert lacks_some
    assert "nothing was brought" in note and "`%sky fetch a b`" in note and "/proj" in note


@pytest.mark.parametrize(
    ("brought", "lacks_some"),
    [
        (BroughtFiles(paths=["a"], found=1), False),
        (BroughtFiles(), False),
        (BroughtFiles(found=1, changing=["a"]), True),
        (BroughtFiles(found=1, refused=["a would be written elsewhere"]), True),
        (FolderError("/proj", "no room", "fetch=a: no room"), True),
    ],
)
def test_what_there_is_and_did_not_come_is_told(brought, lacks_some):
    def bring(*_):
        if isinstance(brought, Exception):
            raise brought
        return brought

    folders = SimpleNamespace(bring=bring)
    pool = SimpleNamespace(closed=False, sending=SimpleNamespace(folders=folders))
    found = fetch_files(pool, WorkingFolder(Path("/proj"), "proj-1", fetch=("a",)), [0], print)  # pyright: ignore[reportArgumentType]
    assert found.lacks_some is lacks_some and len(found.notes) == 1


@pytest.mark.parametrize("has_run", [True, False])
def test_sky_fetch_brings_into_the_last_scripts_folder(tmp_path, monkeypatch, capsys, has_run):
    monkeypatch.chdir(tmp_path)
    proj, asked = WorkingFolder(tmp_path / "proj", "proj-1"), []

    def bring(folder, ranks, watch):
        asked.append(folder)
        return BroughtFiles(paths=["runs/a"], found=1)

    folders = SimpleNamespace(last=proj if has_run else None, bring=bring)
    pool = SimpleNamespace(spec=SPEC, sending=SimpleNamespace(folders=folders))
    monkeypatch.setattr(script_verbs, "live_pool", lambda *_: pool)
    session = SimpleNamespace(finder=SimpleNamespace(name_of=lambda _: "train"))
    script_verbs.fetch(session, "runs/*")  # pyright: ignore[reportArgumentType]
    (folder,) = asked
    here = WorkingFolder(tmp_path, key_of(tmp_path, "train"))
    expected = proj if has_run else here
    assert (folder.root, folder.key, folder.fetch) == (expected.root, expected.key, ("runs/*",))
    assert (f"in {proj.root}:" in capsys.readouterr().out) is has_run
