"""Homes for machines, and an index of packages where there is one."""

import os
import subprocess

import pytest
from bootstrap.homes import index_of_pip, shell_at
from uv import find_uv_bin


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    """Variables with which uv finds packages; skips where none are found."""
    variables = index_of_pip() | {"UV_CACHE_DIR": str(tmp_path_factory.mktemp("uv"))}
    asked = subprocess.run(
        [find_uv_bin(), "pip", "compile", "--quiet", "--no-config", "-"],
        input="msgspec",
        text=True,
        capture_output=True,
        env={**os.environ, **variables, "UV_HTTP_RETRIES": "0"},
        check=False,
    )
    if asked.returncode:
        pytest.skip(f"no index of packages is reached: {asked.stderr.strip().splitlines()[-1]}")
    return variables


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
