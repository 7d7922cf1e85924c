"""What stays at home, compared with git itself."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from skyward_nb.words.errors import OptionError
from skyward_nb.workdir.scan import scan

FILES = (
    "main.py", "a.log", "keep.log", "build/x", "src/build/y", "src/a.log", "src/deep/z.tmp", "src/deep/keep.tmp",
    "data/raw/1", "data/small/1", "docs/a b.txt", "node/index.js", "x/node/y", "logs/day/1", "we!rd", "#hash",
)  # fmt: skip
RULES = {
    ".gitignore": "*.log\n!keep.log\nbuild/\n/node\n# a comment\n\\#hash\ndata/*\n!data/small/\nlogs/**\n",
    "src/.gitignore": "*.tmp\n!deep/keep.tmp\n!a.log\n",
    "docs/.gitignore": "a b.txt\n",
}


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    for name, text in RULES.items():
        (tmp_path / "repo" / name).write_text(text)
    return tmp_path / "repo"


def sent(folder) -> set[str]:
    return {entry.name for entry in scan(folder).entries.values() if entry.content}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
@pytest.mark.parametrize("inner", [".", "src", "data"])
def test_as_git_reads_it(folder, inner):
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard", "."],
        cwd=folder / inner,
        check=True,
        capture_output=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
    )
    assert sent(folder / inner) == {
        os.fsdecode(each) for each in listed.stdout.split(b"\0") if each
    }


def test_skyignore_has_the_last_word(folder):
    (folder / ".skyignore").write_text("!a.log\ndocs\n")
    found = sent(folder)
    assert "a.log" in found and ".gitignore" in found
    assert not any(name.startswith("docs") for name in found)


def test_what_is_of_no_use_elsewhere(folder):
    for name in (".git/HEAD", "venv/pyvenv.cfg", "src/__pycache__/a.pyc", ".ipynb_checkpoints/x"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("")
    assert not any(
        "/" in n and n.split("/")[-2] in (".git", "venv", "__pycache__") for n in sent(folder)
    )


def test_a_pattern_that_is_none(folder):
    (folder / ".gitignore").write_text("!\n")
    with pytest.raises(OptionError, match="gitignore"):
        scan(folder)
