"""The reference is whole: every option, verb, command, public name, error and variable has its place."""

from __future__ import annotations

import re
import sys

import pytest

import skyward_nb as sky
from docs.blocks import ROOT
from skyward_nb import plugins as sky_plugins
from skyward_nb.cli.command_table import COMMANDS
from skyward_nb.options.option_help import VERBS, usage
from skyward_nb.options.option_table import OPTIONS
from skyward_nb.words import errors

DOCS = ROOT / "docs"
INNER = {
    "SKYWARD_KERAS_AVERAGE": "env= of `sky.plugins.keras`",
    "SKYWARD_KERAS_SEED": "env= of `sky.plugins.keras`",
    "SKYWARD_KEPT_NAMES": "from the agent to its ranks",
    "SKYWARD_LEASE_FILE": "from the machine's maker to its agent",
    "SKYWARD_LOGIN_FOLDER": "from our login to the agent",
    "SKYWARD_LOGIN_UMASK": "from our login to the agent",
    "SKYWARD_NODES": "stands for the variables of options",
    "SKYWARD_NOTICES": "from the machine's maker to its agent",
    "SKYWARD_POOL": "marks processes",
}
"""Variables that people do not set, and who does."""


@pytest.fixture(scope="module")
def parts() -> dict[str, str]:
    """What is made of tables of the package, by its name."""
    sys.path.insert(0, str(DOCS))
    try:
        import reference_pages
    finally:
        sys.path.remove(str(DOCS))
    return reference_pages.pages()


def page(name: str) -> str:
    return (DOCS / name).read_text()


def test_every_option_verb_and_command_is_in_the_tables(parts):
    made = "\n".join(parts.values()).replace("\\|", "|")
    for option in OPTIONS:
        assert f"| `{usage(option)}` |" in made, option.name
    for word in (*(f"%sky {verb}" for verb in VERBS), *(f"skyward-nb {each}" for each in COMMANDS)):
        assert f"## `{word}`\n" in made


def test_every_made_part_is_on_a_page(parts):
    included = {
        name
        for path in DOCS.rglob("*.md")
        if path.parent.name != "made"
        for name in re.findall(r"made/([\w-]+)\.md", path.read_text())
    }
    assert included == parts.keys()


def test_every_public_name_has_its_docstring_on_a_page():
    shown = set(re.findall(r"skyward_nb\.(\w+)", page("reference/python.md")))
    told = set(re.findall(r"`sky\.(\w+)", page("reference/python.md")))
    named = {name for name in sky.__all__ if not name.endswith("_ipython_extension")}
    assert named - vars(errors).keys() <= shown | told
    plugins = set(re.findall(r"skyward_nb\.plugins\.(\w+)", page("reference/python.md")))
    assert {*sky_plugins.__all__} - {"PluginChoice"} == plugins


def test_every_error_says_what_to_do():
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.+) \|$", page("reference/errors.md"), re.M))
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.SkyError)
    }
    assert rows.keys() == classes - {"SkyError"}
    assert all(rows.values())


def test_every_variable_is_told():
    used = {
        name
        for path in (ROOT / "skyward_nb").rglob("*.py")
        for name in re.findall(r"SKYWARD_[A-Z_]+[A-Z]", path.read_text())
    }
    told = set(re.findall(r"`(SKYWARD_[A-Z_]+[A-Z])`", page("reference/environment.md")))
    assert used == told | INNER.keys()
