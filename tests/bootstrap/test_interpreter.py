"""Environments that are on a machine already."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from bootstrap.homes import PYTHON, facts_of, make_ready, program, shell_at

from skyward_nb.bootstrap.requirements import RUNNING
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.image import Image

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


def refused(shell, image):
    with pytest.raises(HostNotReady) as raised:
        make_ready(shell, image, facts_of(shell))
    return str(raised.value)


def test_one_that_has_all_is_used_as_it_is(shell, tmp_path):
    image = Image(interpreter=sys.executable, pip=["pytest>=1", "msgspec"])
    made, told = make_ready(shell, image)
    assert (made.python, made.digest) == (sys.executable, "")
    assert not (tmp_path / "home/.cache/skyward_nb/envs").exists()
    words = [made.python, "-P", "-c", "import skyward_nb.node.forge as m; print(m.__file__)"]
    env = {"PYTHONPATH": made.package, "HOME": str(tmp_path)}
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert said.stdout.startswith(made.package)
    assert ("environment", sys.executable, True) in told

    rounds = shell.rounds
    again, _ = make_ready(shell, image, facts_of(shell))
    assert (again, shell.rounds - rounds) == (made, 2)


def test_home_is_that_of_the_machine(shell, tmp_path):
    path = tmp_path / "home/my envs/train/bin/python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    made, _ = make_ready(shell, Image(interpreter="~/my envs/train/bin/python"))
    assert made.python == str(path)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A Python of our minor version that has nothing."""
    folder = tmp_path_factory.mktemp("bare")
    words = [PYTHON.path, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(words, check=True)
    return folder / "bin/python"


def test_what_it_lacks_is_named_with_the_line_to_install_it(shell, bare):
    text = refused(shell, Image(interpreter=str(bare)))
    assert f"interpreter={bare} lacks what ranks need: msgspec (ModuleNotFoundError" in text
    line = text.splitlines()[-1].strip()
    assert line.startswith(f"uv pip install --python {bare} ")
    assert {*shlex.split(line)[5:]} == {*RUNNING}


def test_what_is_on_a_path_that_ranks_do_not_have_does_not_count(tmp_path, bare):
    everything = str(Path(pytest.__file__).parents[1])
    shell = shell_at(tmp_path / "home", PYTHONPATH=everything)
    assert "lacks what ranks need: msgspec" in refused(shell, Image(interpreter=str(bare)))


def test_versions_and_packages_of_the_image_are_looked_at(shell):
    text = refused(
        shell,
        Image(
            interpreter=sys.executable,
            pip=[
                "pytest>=99",
                "nowhere-at-all; python_version<'3'",
                "nowhere-at-all[x]",
                "msgspec>=0.1",
            ],
        ),
    )
    assert "pytest>=99 (pytest " in text
    assert "nowhere-at-all[x] (no nowhere-at-all)" in text
    assert text.splitlines()[-1].endswith("-m pip install 'pytest>=99' 'nowhere-at-all[x]'")


def test_builds_of_a_version_are_the_nodes_affair(shell, tmp_path):
    site = tmp_path / "site"
    place = site / "sky_t_tagged-2.13.0+cu128.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sky-t-tagged\nVersion: 2.13.0+cu128\n"
    )
    python = program(tmp_path, "python", f'PYTHONPATH={site} exec {sys.executable} "$@"')
    make_ready(shell, Image(interpreter=str(python), pip=["sky-t-tagged==2.13.0+cpu"]))
    text = refused(shell, Image(interpreter=str(python), pip=["sky-t-tagged==2.12.0+cpu"]))
    assert "sky-t-tagged==2.12.0 (sky-t-tagged 2.13.0+cu128)" in text


def test_one_that_is_broken_says_how(shell, bare):
    site = next(bare.parents[1].glob("lib/python*/site-packages"))
    (site / "xxhash.py").write_text("raise ImportError('libxxhash.so: wrong ELF class')")
    try:
        text = refused(shell, Image(interpreter=str(bare)))
    finally:
        (site / "xxhash.py").unlink()
    assert "xxhash (ImportError: libxxhash.so: wrong ELF class)" in text


def test_another_minor_version(shell, tmp_path):
    said = 'printf \'\\nsky=interpreter\\n{"version": "3.8", "kind": "CPython", "lacks": []}\\n\''
    old = program(tmp_path, "python3.8", said)
    text = refused(shell, Image(interpreter=str(old)))
    assert f"is Python 3.8, and the notebook or script runs in {MINOR}" in text
    other = program(tmp_path, "pypy", said.replace("3.8", MINOR).replace("CPython", "PyPy"))
    assert f"is Python {MINOR} (PyPy)" in refused(shell, Image(interpreter=str(other)))


def test_a_real_old_python_answers(shell):
    versions = Path.home() / ".pyenv/versions"
    olds = [*versions.glob("2.7*/bin/python"), *versions.glob("3.[67].*/bin/python")]
    if not olds:
        pytest.skip("no old Python here")
    for old in olds:
        assert f"interpreter={old} is Python {old.parents[1].name[:3]}" in refused(
            shell, Image(interpreter=str(old))
        )


def test_none_at_all(tmp_path):
    shell = shell_at(tmp_path / "home")
    text = refused(shell, Image(interpreter="/nowhere/python"))
    assert f"interpreter=/nowhere/python does not run. Name a Python {MINOR}" in text
    text = refused(shell, Image(interpreter=str(program(tmp_path, "silent", "exit 0"))))
    assert "does not run" in text
