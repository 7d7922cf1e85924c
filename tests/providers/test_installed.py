"""What of an image this machine has, where nothing is built."""

import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from skyward_nb.providers.installed import check_image, lacking
from skyward_nb.providers.local import LocalProvider
from skyward_nb.words.errors import MissingDependency, OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.spec import PoolSpec

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def check(**image):
    LocalProvider().check(PoolSpec(image=Image(**image)))


def test_this_python_is_here_and_no_other():
    check(python=HERE)
    check(python=f"{HERE}.99")
    with pytest.raises(
        OptionError,
        match=f"python=3.1: provider=local runs ranks with this Python, {HERE}.*leave python= out|Leave",
    ):
        check(python="3.1")


def test_this_interpreter_is_used_and_no_other():
    check(interpreter=sys.executable)
    check(interpreter=str(Path(sys.executable).with_name("python3")))
    for other in ("/nowhere/python", "~/nowhere/python", "/bin/sh"):
        with pytest.raises(
            OptionError, match=f"interpreter={other}: .* this Python, {sys.executable}"
        ):
            check(interpreter=other)


@pytest.mark.parametrize(
    "text",
    [
        "msgspec",
        "MsgSpec>=0.1",
        "msgspec>=0.1,<99",
        f"msgspec=={version('msgspec')}",
        "nowhere-at-all; python_version<'3'",
        "pytest[no-such-extra]",
    ],
)
def test_packages_that_are_here(text):
    assert lacking([text]) == {}


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("nowhere-at-all", "no nowhere-at-all"),
        ("msgspec>=99", f"msgspec {version('msgspec')}"),
        ("msgspec @ https://host.invalid/x.whl", f"msgspec {version('msgspec')} from elsewhere"),
    ],
)
def test_packages_that_are_not_here_are_what_is_installed(text, has):
    assert lacking(["msgspec", text]) == {text: has}


@pytest.mark.parametrize("text", ["./wheels", "--index-url https://x", "git+https://h/x", "a b"])
def test_what_names_no_package_is_refused(text):
    with pytest.raises(OptionError, match="provider=local installs packages by name"):
        check(pip=[text])


def installed(folder, name, *requires):
    """A package as an installer leaves it."""
    place = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    place.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    (place / "METADATA").write_text("\n".join(lines))


def test_what_an_extra_asks_for_is_looked_at_too(tmp_path, monkeypatch):
    installed(
        tmp_path, "sky-t-app",
        "msgspec", "nowhere-at-all; extra == 'more'", "sky-t-app[more]; extra == 'all'",
        "sky-t-app[all]; extra == 'all'", "msgspec>=0.1; extra == 'some'",
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    assert lacking(["sky-t-app", "sky-t-app[some]"]) == {}
    for extra in ("more", "all", "some,more"):
        asked = f"sky-t-app[{extra}]"
        assert lacking([asked]) == {asked: "no nowhere-at-all"}


LISTED = """\
#!/bin/sh
printf 'base-files\\tamd64\\t12.4\\tinstalled\\tbase, awk (= 1)\\n'
printf 'gone\\tamd64\\t1.0\\tconfig-files\\t\\n'
printf 'git\\tamd64\\t1:2.39\\tinstalled\\t\\n'
"""


@pytest.fixture
def dpkg(tmp_path, monkeypatch):
    tool = tmp_path / "dpkg-query"
    tool.write_text(LISTED)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.usefixtures("dpkg")
def test_packages_of_debian():
    check(apt=["git", "git:amd64", "git=1:2.39", "awk", "base"])
    with pytest.raises(MissingDependency, match=r"apt-get install gone git=1:2\.40 no-such"):
        check(apt=["git", "gone", "git=1:2.40", "no-such"])


def test_a_machine_without_debians_packages_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OptionError, match="no dpkg-query on this machine"):
        check(apt=["git"])


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="no dpkg-query here")
def test_the_real_list_is_read():
    check_image(Image(apt=["dpkg"]))
    with pytest.raises(MissingDependency, match="no-such-package"):
        check_image(Image(apt=["no-such-package"]))
