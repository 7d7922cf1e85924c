"""What an agent and a forge import before they work: every pool waits for it, on every machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SLOW = ("email", "importlib.metadata", "multiprocessing", "skyward_nb.words.spec")


@pytest.mark.parametrize(
    ("modules", "without"),
    [
        ("skyward_nb.node.agent", ("IPython", "skyward_nb.node.forge", *_SLOW)),
        (
            "skyward_nb.node.forge, skyward_nb.node.rank, skyward_nb.node.rank_shell",
            ("asyncio", "ssl", "psutil", *_SLOW),
        ),
    ],
    ids=["agent", "forge"],
)
def test_they_import_no_more_than_they_need(modules, without):
    code = (
        # What an environment imports for each Python is no affair of theirs, nor that IPython's pdb
        # brings asyncio from Python 3.14 on.
        "import pdb, sys; before = {*sys.modules}\n"
        f"import {modules}\n"
        f"print([each for each in {without} if each in {{*sys.modules}} - before])"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
