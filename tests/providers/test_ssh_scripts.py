"""Scripts on hosts that one logs in to: their folder goes there, by content, and results come back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from later import needs
from pools import follow, found
from sshds import lacks

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.protocol.events import Output
from skyward_nb.reports.fetched_files import fetch_files
from skyward_nb.reports.task_script import script_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.folder_entry import FolderError

pytestmark = pytest.mark.skipif(bool(lacks()), reason=lacks())
IS_FOR_POOLS = True
MAIN = """\
import os, sys
from pathlib import Path
from lib.part import word
import skyward_nb as sky
runs = Path("runs")
runs.mkdir(exist_ok=True)
print(word, Path("odd name\\n!").read_text(), sys.argv[1:], Path(sys.argv[0]).name)
print("in", os.getcwd())
if sky.is_head():
    (runs / "model.pt").write_text("weights " + sys.argv[1])
    (runs / "notes.txt").write_text("not asked for")
    (Path("snapshot")).write_text(sys.argv[1])
"""


def ran(pool, *words, **options):
    """What a script prints, the row of its folder in the manifest, and words on what was brought."""
    script = script_of([*words], "")
    request = script.request(pool.ranks, CellOptions(**options), pool.spec)
    said: list[str] = []

    def watch(event):
        if isinstance(event, Output):
            said.append(event.text)

    outcome = pool.run(request, watch)
    assert not outcome.failed, outcome.failed[0].failure.traceback
    notes = fetch_files(pool, outcome.folder, pool.ranks, lambda _: None).notes
    pool.seen()
    row, *_ = outcome.plan.rows or (None,)
    return "".join(said), row, notes


def test_a_folder_goes_there_and_results_come_back(ssh, tmp_path, monkeypatch):
    folder = tmp_path / "two words"
    (folder / "lib").mkdir(parents=True)
    (folder / "main.py").write_text(MAIN)
    (folder / "lib" / "part.py").write_text("word = 'first'")
    (folder / "odd name\n!").write_text("odd")
    (folder / "snapshot").write_text("0")
    monkeypatch.chdir(folder)
    pool = ssh("one", "two")
    text, row, notes = ran(pool, "main.py", "7", fetch=("runs/*.pt",))
    assert "first odd ['7'] main.py\n" in text
    place = Path(text.partition("in ")[2].partition("\n")[0])
    assert place.name.startswith("two_words-") and place != folder
    assert (row.name, row.status, row.type_name) == ("two words/", "sent", "4 files")
    assert notes == ("brought runs/model.pt (9 B)",)
    assert (folder / "runs" / "model.pt").read_text() == "weights 7"
    assert not (folder / "runs" / "notes.txt").exists()
    assert (folder / "snapshot").read_text() == "0"

    # What came back travels no more, a snapshot is not written over, and a module is the new one.
    (folder / "lib" / "part.py").write_text("word = 'other'")
    (folder / "odd name\n!").write_text("odder")
    text, row, notes = ran(pool, "main.py", "8", fetch=("runs/*.pt", "snapshot"))
    assert "other odder ['8'] main.py\n" in text
    assert row.size == len("word = 'other'odder")
    assert sorted(notes) == ["brought runs/model.pt, snapshot (10 B)"]
    assert (folder / "snapshot").read_text() == "8"
    _, row, notes = ran(pool, "main.py", "8", fetch=("runs/*.pt", "nowhere/*"))
    assert row.status == "unchanged" and notes == (
        "runs/*.pt,nowhere/*: all of it is here already, or as it was sent",
    )

    # Of another folder than this one, its own goes.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "apart").mkdir()
    os.chdir(tmp_path / "apart")
    text, row, notes = ran(pool, "../two words/main.py", "9", fetch=("*.csv",))
    assert "other odder ['9'] main.py\n" in text
    assert notes == ("fetch=*.csv: the script's folder has no such file",)

    with pytest.raises(OptionError, match="folder=none sends none"):
        ran(pool, "main.py", fetch=("a",), folder="none")
    (place / "lib" / "part.py").unlink()
    (place / "lib" / "new").mkdir()
    (place / "lib" / "new" / "result").write_text("x")
    (folder / "lib" / "new").write_text("a file here")
    with pytest.raises(FolderError, match=r"lib/new is a file here, and on the machine a folder"):
        ran(pool, "../two words/main.py", "9")


TASK = """\
workdir: code
file_mounts: {{{0}/data: ./data, {0}/one.txt: "./two words.txt"}}
run: |
  cat {0}/data/deep/x {0}/one.txt main.py
  ls -A {0}
"""


@needs("yaml")
def test_what_a_task_mounts_is_at_its_path_on_each_node(ssh, tmp_path, monkeypatch):
    files = {"code/main.py": "main", "data/deep/x": "deep", "two words.txt": "one"}
    there = tmp_path / "there"
    for name, text in {**files, "train.yaml": TASK.format(there)}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.chdir(tmp_path)
    pool = ssh("one")
    text, row, _ = ran(pool, "train.yaml")
    assert text == "deep\none\nmain\ndata\none.txt\n" and row.status == "sent"
    assert (there / "data").is_symlink() and not (there / "data").is_relative_to(tmp_path / "data")
    (tmp_path / "data" / "deep" / "x").write_text("new\n")
    text, row, _ = ran(pool, "train.yaml")
    assert text.startswith("new\none\n") and row.status == "unchanged"
    (there / "one.txt").unlink()
    (there / "one.txt").write_text("of somebody else")
    with pytest.raises(AssertionError, match=r"one\.txt is there already: name another path"):
        ran(pool, "train.yaml")


@pytest.mark.extensive
def test_another_client_brings_what_the_one_before_asked_for(ssh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("main.py").write_text("open('result', 'w').write('7')")
    first = ssh("one", "two")
    options = CellOptions(fetch=("result",))
    request = script_of(["main.py"], "").request(first.ranks, options, first.spec)
    first.begin(request, lambda _: None)
    first.leave()
    monkeypatch.chdir("/")
    second = found(first)
    second.attach(lambda _: None)
    outcome = follow(second, lambda _: None)
    notes = fetch_files(second, outcome.folder, second.ranks, lambda _: None).notes
    assert notes == ("brought result (1 B)",) and (tmp_path / "result").read_text() == "7"
    assert second.sending.folders.last.root == tmp_path
    second.close()
