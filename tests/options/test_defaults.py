"""Defaults, from the user's file to the line, the later the stronger."""

import pytest

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.defaults import defaults, sources_told, with_defaults
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "skyward_nb").mkdir(parents=True)
    (tmp_path / "project" / "deep").mkdir(parents=True)
    return tmp_path


def write(places, user=None, project=None):
    if user is not None:
        (places / "config" / "skyward_nb" / "config.toml").write_text(user)
    if project is not None:
        (places / "project" / "pyproject.toml").write_text(project)


def asked(places, line="", environ=None, session=None):
    known = defaults(places / "project" / "deep", environ or {}, session or {})
    return with_defaults(parse(line), known)


def test_each_layer_is_stronger_than_the_one_before(places):
    write(places, "nodes = 2\nframework = 'torch'", "[tool.skyward]\nnodes = 3")
    assert asked(places).pool == PoolOptions(nodes=3, framework=("torch",))
    assert asked(places, environ={"SKYWARD_NODES": "4"}).pool.nodes == 4
    assert asked(places, environ={"SKYWARD_NODES": "", "SKYWARD_SIMULATE": ""}).pool.nodes == 3
    stronger = {"environ": {"SKYWARD_NODES": "4"}, "session": {"nodes": "5"}}
    assert asked(places, **stronger).pool.nodes == 5
    assert asked(places, "nodes=6", **stronger).pool.nodes == 6


def test_an_option_of_the_line_is_stronger_also_where_it_has_the_usual_value(places):
    write(places, "quiet = true\nnodes = 2\naccelerator = 'A100'")
    found = asked(places, "quiet=no accelerator=none")
    assert not found.cell.quiet
    assert found.pool == PoolOptions(nodes=2, accelerator=None)


def test_defaults_about_logins_are_for_hosts_and_those_about_trust_for_all(places):
    write(places, "user = 'me'\nport = 22\ntrust = 'values,first'")
    found = asked(places, "provider=slurm").pool
    assert found == PoolOptions(provider="slurm", trust=("values", "first"))
    assert asked(places, "hosts=a").pool.user == "me"


def test_tables_lists_and_flags_are_as_on_the_line(places):
    write(places, "env = {A = '1', B = 2}\npull = ['a', 'b']\nquiet = true\nranks-per-node = 2")
    found = asked(places)
    assert found.pool == PoolOptions(env={"A": "1", "B": "2"}, ranks_per_node=2)
    assert found.cell == CellOptions(pull=("a", "b"), quiet=True)


@pytest.mark.parametrize(
    "text",
    ['[[2, 2], ["fsdp", "tp"]]', "{fsdp = 2, tp = 2}", "['fsdp:2', 'tp:2']", "'fsdp:2,tp:2'"],
)
def test_a_mesh_is_a_list_as_configurations_have_it_or_a_table(places, text):
    write(places, project=f"[tool.skyward]\nmesh = {text}\ncluster = false")
    assert asked(places).pool == PoolOptions(mesh=(("fsdp", 2), ("tp", 2)), cluster=False)


def test_no_files_no_defaults(places):
    assert asked(places).pool == PoolOptions()
    assert (
        asked(places, environ={"SKYWARD_RUNTIME_DIR": "/x", "SKYWARD_RUN": "3"}).pool
        == PoolOptions()
    )


@pytest.mark.parametrize(
    ("user", "project", "environ", "says"),
    [
        ("run = 3", None, {}, r"run belongs to %sky logs.*config\.toml"),
        ("nods = 2", None, {}, r"did you mean nodes\?.*config\.toml"),
        ("nodes = 'four'", None, {}, r"whole number.*config\.toml"),
        (None, "[tool.skyward]\nnodes = 0", {}, r"1 or more.*pyproject\.toml"),
        (None, None, {"SKYWARD_NODES": "x"}, "whole number.*SKYWARD_NODES"),
        ("nodes = ", None, {}, r"config\.toml cannot be read"),
    ],
)
def test_a_bad_default_names_its_place(places, user, project, environ, says):
    write(places, user, project)
    with pytest.raises(OptionError, match=says):
        asked(places, environ=environ)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "hosts=h",
            r"nodes=2, and hosts= has 1.* \(nodes=2 is from .*pyproject.toml \[tool.skyward\]\)",
        ),
        ("hosts=h nodes=3", r"ranks_per_node=N$"),
    ],
)
def test_an_option_that_does_not_fit_a_default_names_the_place_of_that(places, line, says):
    write(places, project="[tool.skyward]\nnodes = 2\nidle = '20m'")
    known = defaults(places / "project", {}, {})
    with pytest.raises(OptionError, match=says), sources_told(parse(line).pool, known):
        spec_of(PoolSpec(), with_defaults(parse(line), known).pool)
