"""Kernels that are installed, listed and taken away: files, and what is said."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from later import Later

from skyward_nb.kernel.__main__ import main
from skyward_nb.kernel.kernelspecs import NAME, TITLE, read, spec
from skyward_nb.options.option_line import parse_settings
from skyward_nb.words.errors import OptionError

# tqdm takes a process that has imported ipykernel for a notebook.
nbformat = Later("nbformat")
kernelapp = Later("ipykernel.kernelapp")
pool_kernel = Later("skyward_nb.kernel.pool_kernel")


PLAIN = [
    "import skyward_nb as sky\nstep = sky.rank() + 1",
    "def double(x):\n    return 2 * x",
    "double(step)",
]


def test_linters_read_cells_without_magic_lines(tmp_path):
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")
    cells = [nbformat.v4.new_code_cell(each) for each in PLAIN]
    path = tmp_path / "plain.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    words = ["-m", "ruff", "check", "--isolated", "--select=F", "--no-cache", str(path)]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    # With magic lines, what is bound on ranks is unknown to them.
    cells[0].source = f"%%sky_remote\n{cells[0].source}"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert "Undefined name `step`" in ran.stdout


def test_a_kernel_is_installed_listed_and_taken_away(prefix, capsys):
    words = ["--nodes", "4", "--framework", "torch"]
    assert main(["install", "--prefix", str(prefix), *words]) == 0
    folder = prefix / "share/jupyter/kernels" / NAME
    assert str(folder) in capsys.readouterr().out
    assert (folder / "logo-64x64.png").exists()
    made = json.loads((folder / "kernel.json").read_text())
    assert made["display_name"] == f"{TITLE} (nodes=4 framework=torch)"
    assert made["argv"][0] == sys.executable
    assert made["argv"][-3:] == [
        "-f",
        "{connection_file}",
        "--PoolKernel.options= nodes=4 framework=torch",
    ]
    # In its own place, without being asked.
    assert main(["install", "--prefix", str(prefix), "--name", "Four", "--display-name", "4"]) == 0
    capsys.readouterr()
    assert main(["list"]) == 0
    assert [line.split("  ")[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["four", "4"],
        [NAME, f"{TITLE} (nodes=4 framework=torch)"],
    ]
    assert main(["uninstall"]) == 0
    assert main(["uninstall", "Four"]) == 0
    assert not folder.exists()
    capsys.readouterr()
    assert main(["list"]) == 0
    assert capsys.readouterr().out == "none is installed: python -m skyward_nb.kernel install\n"
    assert main(["uninstall"]) == 2
    assert f"no kernel {NAME!r} was installed here: none is installed" in capsys.readouterr().err


def test_a_kernel_of_another_package_stays(prefix, capsys):
    folder = prefix / "share/jupyter/kernels/python3"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text('{"argv": [], "display_name": "P", "language": "python"}')
    assert main(["install", "--prefix", str(prefix), "--name", "python3"]) == 2
    assert "is a kernel of another package: take another --name" in capsys.readouterr().err
    assert main(["uninstall", "python3"]) == 2
    assert (folder / "kernel.json").exists()


def test_where_and_with_which_options():
    assert read(["--user"]).prefix is None
    assert read(["--sys-prefix"]).prefix == sys.prefix
    # These tests run in a virtual environment: it finds the kernels in it.
    assert read([]).prefix == (sys.prefix if sys.prefix != sys.base_prefix else None)
    asked = read(["--name=a", "hosts=a,b", "-n", "2", "--keep", "--env", "A=two words"])
    assert asked.options == "hosts=a,b nodes=2 keep=yes 'env=A=two words'"
    assert spec(read([]))["argv"][-1] == "{connection_file}"


@pytest.mark.parametrize("words", [["--pip", "torch numpy"], ["--env", "A=1 2", "--pip", "a b"]])
def test_options_arrive_as_they_were_given(words):
    """What traitlets makes of the command, where one value alone would lose its quotes."""
    asked = read(words)
    app = kernelapp.IPKernelApp()
    app.classes = [*kernelapp.IPKernelApp.classes, pool_kernel.PoolKernel]
    app.parse_command_line([spec(asked)["argv"][-1]])
    # A kernel itself would make a shell, which other tests of this process would find.
    said = app.config.PoolKernel.options
    assert parse_settings(said) == parse_settings(asked.options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nods", "4"], "did you mean nodes"),
        (["--nodes"], "nodes needs a value"),
        (["--nodes", "many"], "nodes"),
        (["--name"], "--name needs a value"),
        (["--name", "a b"], "letters, digits"),
        (["--user", "--sys-prefix"], "state one of them"),
        (["--env", "A=1,HF_TOKEN=hf_x"], "env= has a secret"),
        (["--pip", "--extra-index-url=https://me:pw@host/simple"], "pip= has a secret"),
    ],
)
def test_wrong_words_are_named(words, message):
    with pytest.raises(OptionError, match=message):
        read(words)


def test_the_command_says_how_it_is_used(capsys):
    assert main(["--help"]) == 0
    assert main(["install", "--help"]) == 0
    assert capsys.readouterr().out.count("skyward_nb.kernel uninstall") == 2
    assert main(["remove"]) == 2
    assert "no command 'remove'" in capsys.readouterr().err
    assert main(["install", "--nods", "4"]) == 2
    assert "did you mean nodes" in capsys.readouterr().err
