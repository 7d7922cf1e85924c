"""The frame of the command line: help, words that are not understood, what is imported."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from terminals import sky

from skyward_nb.cli import main
from skyward_nb.cli.actions import DO
from skyward_nb.cli.command_help import help_text
from skyward_nb.cli.command_table import COMMANDS
from skyward_nb.cli.documents import Check, Down, Hang, Log, Nodes, Runs, Status, Sweep

HEAVY = {"IPython", "ipykernel", "ipywidgets", "matplotlib", "numpy", "torch", "asyncio"}


def test_help_of_all_names_every_command():
    ran = sky("--help")
    assert ran.code == 0 and not ran.stderr
    assert all(f"  {name} " in ran.stdout for name in COMMANDS)
    assert sky("help").stdout == ran.stdout
    assert "exit codes: 0 done" in ran.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_its_options_and_the_keys_of_its_document(command, capsys):
    assert main([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: skyward-nb {command} [--json]")
    for option in COMMANDS[command].takes:
        assert f"\n  {option}" in said
    assert main(["help", command]) == 0
    assert capsys.readouterr().out == said
    assert command in DO


@pytest.mark.parametrize(
    ("command", "document"),
    [
        ("status", Status),
        ("logs", Log),
        ("logs", Nodes),
        ("logs", Runs),
        ("down", Down),
        ("sweep", Sweep),
        ("check", Check),
        ("check", Hang),
    ],
)
def test_help_says_every_key(command, document):
    said = " ".join(help_text(command).split())
    assert ", ".join(field.encode_name for field in msgspec.structs.fields(document)) in said


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal(command):
    assert max(map(len, help_text(command).splitlines())) <= 100


def test_keys_within_are_told_by_where_they_are():
    said = help_text("status")
    assert "\n    pools[].client: process, host, notebook, program\n" in said
    assert "\n    pools[].ranks[]: rank, node, process, lost\n" in said
    assert "found.reach{}[]: to, seconds, trouble" in help_text("check")


def test_the_program_is_this_one():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["skyward-nb"].partition(":")
    assert getattr(importlib.import_module(module), function) is main


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"skyward-nb {importlib.metadata.version('skyward-nb')}\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "a command is missing: the commands are status"),
        ("stauts", "did you mean status?"),
        ("up", "there is no command 'up'"),
        ("help stauts", "there is no command 'stauts'"),
        (
            "status nodes=2",
            "nodes= is not an option of this command; skyward-nb status --help lists",
        ),
        ("status a b", "there is no option 'b'; skyward-nb status --help lists them"),
        ("status a pool=b", "a and b: name one pool"),
        ("status --verbose", "there is no option 'verbose'"),
        ("sweep soon", "there is no option 'soon'"),
        ("logs rank=x", "rank=x: write all, head"),
        ("logs lines=0", "lines=0: give a whole number"),
        ("logs 3 run=4", "3 and run=4: name one run"),
        ("logs 3 node=1", "run=3 selects the output of a run, and node=1 that of machines"),
        ("logs node=1 rank=2", "rank=2 selects the output of a run"),
        ("logs node=1 pool=nosuch", "no log is kept of machines of pool 'nosuch'"),
        ("logs nosuch-000000/1", "its output is not on disk"),
        ("check hnag", "did you mean hang?"),
        ("check hang nodes=2", "nodes= is not an option here, only pool= is"),
        ("check framework=auto", "needs code whose imports it can read"),
        ("run", "a script is missing"),
        ("run nodes=2", "a script is missing"),
        ("run nodse=2 x.py", "did you mean nodes?"),
        ("run --nodse 2 x.py", "did you mean nodes?"),
        ("run node=2 x.py", "node= is not an option of this command; did you mean nodes?"),
        ("logs ranks=1", "ranks= is not an option of this command; did you mean rank?"),
        ("run nodes=two x.py", "whole number"),
        ("run timeout=2 s x.py", "timeout=2 s: write it without a space, timeout=2s"),
        ("run out=x x.py", "out= is not an option of this command"),
        ("run image=mine x.py", "image= is not an option of this command"),
        ("run nosuch.py", "there is no script nosuch.py"),
    ],
)
def test_what_is_not_understood_ends_with_2_before_anything_starts(line, says, capsys):
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert err.startswith("skyward-nb: ") and says in err and "Traceback" not in err
    assert not out


def test_trouble_as_json():
    ran = sky("status", "nosuch", "--json")
    assert ran.code == 1
    assert ran.json == {"error": {"type": "PoolError", "message": "no pool 'nosuch' is up"}}
    assert ran.stderr == "skyward-nb: no pool 'nosuch' is up\n"


@pytest.mark.parametrize("line", [["status"], ["status", "--json"], ["logs", "runs"]])
def test_what_only_tells_imports_nothing_heavy(line):
    code = f"import sys; from skyward_nb.cli import main; print(main({line})); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, code, modules = done.stdout.splitlines()
    assert code == "0"
    assert not HEAVY & {*modules.split()}


def test_a_default_that_is_wrong_is_named_with_its_place(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.skyward]\nnodse = 2\n")
    (tmp_path / "x.py").write_text("")
    ran = sky("run", "x.py", folder=tmp_path)
    assert ran.code == 2
    assert "did you mean nodes?" in ran.stderr and "pyproject.toml" in ran.stderr


def test_no_pool_is_up(no_leaks, monkeypatch, tmp_path):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path))  # no engine was ever asked for anything
    assert sky("status").stdout == "no pool is up\n"
    assert sky("status", "--json").json == {"pools": [], "silent": []}
    assert sky("down").stdout == "no pool is up\n"
    assert sky("down", "all", "--json").json == {"ended": [], "kept": [], "folders": 0}
    assert sky("check", "hang").stdout == "nothing runs: no pool is up\n"
    assert sky("sweep").stdout == "nothing is left over\n"
    assert sky("sweep", "--json").json == {"folders": 0, "values": 0, "processes": 0}
