"""Contracts of import-linter name every module that they are of: a new one is not left out unnoticed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {
    package: contract
    for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
    if contract["type"] == "forbidden"
    for package in contract["forbidden_modules"]
}


def modules_of(room: str) -> set[str]:
    """The modules and packages of a room."""
    inside = (ROOT / "skyward_nb" / room).iterdir()
    names = {
        each.stem for each in inside if each.suffix == ".py" or (each / "__init__.py").exists()
    }
    return {f"skyward_nb.{room}.{name}" for name in names - {"__init__"}}


@pytest.mark.parametrize(
    ("package", "room", "own"),
    [
        ("IPython", "compat", {"ipykernel_private", "ipython_private", "ipywidgets_private"}),
        ("asyncssh", "compat", {"asyncssh_private"}),
        ("asyncssh", "providers", {"aws", "ssh"}),
        ("boto3", "compat", set()),
        ("boto3", "providers", {"aws"}),
    ],
)
def test_all_but_its_own_modules_are_kept_from_a_package(package, room, own):
    named = set(CONTRACTS[package]["source_modules"])
    if f"skyward_nb.{room}" in named:
        assert not own
        return
    without = modules_of(room) - named
    assert without == {f"skyward_nb.{room}.{each}" for each in own}
