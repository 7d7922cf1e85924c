"""What environments need, as text."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from skyward_nb.bootstrap import requirements
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.spec import PoolSpec

OF_THE_CLIENT = {"asyncssh>=2.24,<2.25", "cryptography>=43", "pathspec>=0.12,<2", "uv>=0.13.9"}


def test_our_needs_are_those_of_the_package_without_what_only_the_client_has():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert {*requirements.RUNNING, *requirements.BESIDE} == {
        *project["project"]["dependencies"]
    } - OF_THE_CLIENT


def here(name):
    return f"{name}=={version(name)}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("msgspec", here("msgspec")),
        ("msgspec>=0.1,<99", here("msgspec")),
        ("msgspec>=99", "msgspec>=99"),
        ("msgspec==0.1", "msgspec==0.1"),
        ("pytest[dev]", f"pytest[dev]=={version('pytest')}"),
        ("nowhere-at-all>=1", "nowhere-at-all>=1"),
        ("nowhere-at-all==2.13.0+cpu", "nowhere-at-all==2.13.0"),
        ("nowhere-at-all~=2.13", "nowhere-at-all~=2.13"),
        ("x @ https://host/x.whl", "x@ https://host/x.whl"),
        ("git+https://host/x", "git+https://host/x"),
        # What is worked in here has no such version elsewhere.
        ("skyward-nb", "skyward-nb"),
    ],
)
def test_what_runs_here_too_is_wanted_at_its_version(text, expected):
    assert requirements.wanted(text).replace(" @ ", "@ ") == expected


def test_a_tag_of_the_version_here_is_left_out(monkeypatch, tmp_path):
    place = tmp_path / "sky_t_tagged-2.13.0+cpu.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sky-t-tagged\nVersion: 2.13.0+cpu\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert requirements.wanted("sky-t-tagged>=2.6") == "sky-t-tagged==2.13.0"
    assert requirements.wanted("sky-t-tagged==2.13.0+cpu") == "sky-t-tagged==2.13.0"


@pytest.mark.parametrize(
    "text",
    ["./wheels", "--index-url https://x", "a b", "file:///x.whl", "x @ file:///x.whl", "-e ."],
)
def test_what_no_node_could_install_is_refused(text):
    with pytest.raises(OptionError, match="A node installs packages by name or address"):
        requirements.requirements(Image(pip=[text]))


def test_a_password_is_not_shown():
    with pytest.raises(OptionError) as raised:
        requirements.requirements(Image(pip=["--index-url https://me:hunter2@host/simple"]))
    assert "hunter2" not in str(raised.value)


def test_bounds_of_ours_hold_for_what_is_asked_for():
    found = requirements.requirements(Image(pip=["msgspec==0.18"]))
    assert {"msgspec==0.18", "msgspec>=0.20"} <= {*found}
    assert here("ipython") in found


def test_frameworks_bring_what_they_need():
    spec = PoolSpec(framework=("torch",), image=Image(pip=["Torch==2.4"]))
    assert requirements.image_of(spec).pip == ("Torch==2.4", "numpy>=2")
    assert requirements.image_of(PoolSpec()) == Image()


def test_another_minor_version_is_refused_with_what_to_do():
    requirements.check_minor(Image(python=requirements.minor()))
    requirements.check_minor(Image(python=f"{requirements.minor()}.99"))
    with pytest.raises(OptionError, match=r"python=3\.1: this is Python.*start the notebook"):
        requirements.check_minor(Image(python="3.1"))
