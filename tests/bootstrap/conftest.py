"""Homes for machines, and an index of packages where there is one."""

import os
import subprocess

import pytest
from bootstrap.homes import PYTHON, index_of_pip, shell_at
from uv import find_uv_bin

from skyward_nb.bootstrap import requirements as asked
from skyward_nb.bootstrap.requirements import requirements
from skyward_nb.words.image import Image


@pytest.fixture(scope="session")
def online(tmp_path_factory):
    """Variables with which uv finds packages, what these tests need in its cache; skips where none are found."""
    folder = tmp_path_factory.mktemp("uv")
    variables = index_of_pip() | {"UV_CACHE_DIR": str(folder / "cache")}
    env = {**os.environ, **variables, "UV_HTTP_RETRIES": "1"}
    needs = [*requirements(Image(pip=["six", "iniconfig<2"]))]
    for number, packages in enumerate((needs, ["iniconfig==1.0.0"])):
        place = str(folder / str(number))
        subprocess.run(
            [find_uv_bin(), "venv", "--quiet", "--python", PYTHON.path, place], check=True
        )
        asked = subprocess.run(
            [find_uv_bin(), "pip", "install", "--quiet", "--python", place, *packages],
            text=True, capture_output=True, env=env, check=False,
        )  # fmt: skip
        if asked.returncode:
            pytest.skip(f"no index of packages is reached: {asked.stderr.strip().splitlines()[-1]}")
    return variables


@pytest.fixture(scope="session")
def index(online):
    """The same without asking any more."""
    return online | {"UV_OFFLINE": "1"}


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    """What is noted on this machine of environments is noted for this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "client"))


@pytest.fixture
def shell(tmp_path):
    """A machine at which nobody has been."""
    return shell_at(tmp_path / "home")


@pytest.fixture
def host(tmp_path, index):
    """A machine at which nobody has been, that reaches an index of packages."""
    return shell_at(tmp_path / "home", **index)


@pytest.fixture
def few_needs(monkeypatch):
    """Environments have what agents and ranks import, and no more: where the rest is not the subject."""
    monkeypatch.setattr(asked, "BESIDE", ())
