"""What an agent and a forge import before they work: every pool waits for it, on every machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from skyward_nb.node.__main__ import SHARED

_SLOW = ("email", "importlib.metadata", "multiprocessing", "skyward_nb.words.spec")


@pytest.mark.parametrize(
    ("modules", "without"),
    [
        ("skyward_nb.node.agent", ("IPython", "psutil", "skyward_nb.node.forge", *_SLOW)),
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


def test_what_completes_names_is_made_when_it_is_asked_for(tmp_path):
    code = (
        "import pathlib, sys\n"
        "from skyward_nb.node.rank_shell import make_shell\n"
        f"shell = make_shell(pathlib.Path({str(tmp_path)!r}))\n"
        "print('IPython.core.completer' in sys.modules)\n"
        "shell.user_ns['history'] = shell.Completer.namespace is shell.user_ns\n"
        "shell.run_cell('%config IPCompleter.use_jedi = False')\n"
        "print(shell.Completer.use_jedi, 'history' in shell.complete('hist', 'hist', 4)[1])\n"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\nFalse True\n"


def test_what_both_import_is_imported_before_the_fork():
    """All of `SHARED` is needed by both, and nothing of ours that both need is left out."""

    def imported(modules: str) -> set[str]:
        code = f"import {modules}, sys\nprint(*[each for each in sys.modules if each.startswith('skyward_nb.')])"
        command = [sys.executable, "-P", "-c", code]
        return {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}

    forge = imported("skyward_nb.node.forge, skyward_nb.node.rank, skyward_nb.node.rank_shell")
    assert imported(", ".join(SHARED)) == imported("skyward_nb.node.agent") & forge
