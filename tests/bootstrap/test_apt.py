"""Packages of Debian that an image names."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from bootstrap.homes import make_ready, program, shell_at

from skyward_nb.bootstrap import apt
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.image import Image

LIST = r"""
printf 'git\tamd64\t1:2.39\tinstalled\t\n'
[ -e "$HOME/ffmpeg" ] && printf 'ffmpeg\tamd64\t7:5.1\tinstalled\t\n'
exit 0"""

GET = r"""
echo "$*" >>"$HOME/apt"
case "$*" in *update*) touch "$HOME/updated"; exit 0 ;; esac
[ -e "$HOME/updated" ] || { echo "E: Unable to locate package ffmpeg" >&2; exit 100; }
touch "$HOME/ffmpeg" """


@pytest.fixture
def debian(tmp_path):
    """A machine whose packages are played, but for what finds them."""
    tools = tmp_path / "tools"
    program(tools, "dpkg-query", LIST)
    program(tools, "apt-get", GET)
    program(tools, "sudo", 'echo "sudo: a password is required" >&2; exit 1')
    return shell_at(tmp_path / "home", PATH=f"{tools}:{os.environ['PATH']}")


def wants(*apt):
    return Image(interpreter=sys.executable, apt=apt)


def test_what_is_there_costs_no_round(debian, tmp_path):
    _, told = make_ready(debian, wants("git", "git:amd64", "git=1:2.39"))
    assert ("packages", "", True) in told
    assert not (tmp_path / "home/apt").exists()


def test_what_is_lacking_is_installed_where_that_is_allowed(debian, tmp_path):
    program(tmp_path / "tools", "id", "echo 0")
    _, told = make_ready(debian, wants("git", "ffmpeg"))
    assert ("packages", "installing ffmpeg", False) in told
    calls = (tmp_path / "home/apt").read_text().splitlines()
    assert [call.split("-q ")[1] for call in calls] == [
        "install --no-install-recommends ffmpeg",
        "update",
        "install --no-install-recommends ffmpeg",
    ]


def test_sudo_is_asked_without_a_password(debian, tmp_path):
    program(tmp_path / "tools", "id", "echo 1000")
    program(tmp_path / "tools", "sudo", '[ "$1" = -n ] && shift && exec "$@"')
    make_ready(debian, wants("ffmpeg"))
    assert (tmp_path / "home/ffmpeg").exists()


def test_where_it_is_not_allowed_the_line_to_type_is_told(debian, tmp_path):
    program(tmp_path / "tools", "id", "echo 1000")
    with pytest.raises(HostNotReady) as raised:
        make_ready(debian, wants("git", "ffmpeg", "libx=1.0"))
    assert "sudo asks for a password" in str(raised.value)
    assert "sudo apt-get install ffmpeg libx=1.0" in str(raised.value)
    assert not (tmp_path / "home/apt").exists()


def test_where_there_is_no_sudo_root_is_to_do_it(debian, tmp_path):
    tools = tmp_path / "tools"
    (tools / "sudo").unlink()
    program(tools, "id", "echo 1000")
    others = tmp_path / "others"
    others.mkdir()
    for each in {*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()}:
        if each.name != "sudo" and not (others / each.name).is_symlink():
            (others / each.name).symlink_to(each)
    shell = shell_at(tmp_path / "home", PATH=f"{tools}:{others}")
    with pytest.raises(HostNotReady) as raised:
        make_ready(shell, wants("ffmpeg"))
    assert "its user is not root, and it has no sudo. There, as root:" in str(raised.value)
    assert "\n  apt-get install ffmpeg" in str(raised.value)


HELD = r"""
echo "$*" >>"$HOME/apt"
[ -e "$HOME/updated" ] && exit 0
case "$*" in *update*) ;; *) echo "E: Unable to locate package ffmpeg" >&2; exit 100 ;; esac
tries=$(grep -c update "$HOME/apt")
[ "$tries" -le FREE ] || { touch "$HOME/updated"; exit 0; }
echo "Reading package lists..."
echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)" >&2
echo "E: Unable to lock directory /var/lib/apt/lists/" >&2
exit 100"""


@pytest.mark.parametrize(
    ("free", "patience", "says"),
    [(2, 60, ""), (99, 0, "and another apt-get has held its locks for 0 s")],
)
def test_first_updates_of_a_new_machine_are_waited_for(
    debian, tmp_path, monkeypatch, free, patience, says
):
    monkeypatch.setattr(apt, "_PAUSE", 0)
    monkeypatch.setattr(apt, "_PATIENCE", patience)
    program(tmp_path / "tools", "id", "echo 0")
    program(tmp_path / "tools", "apt-get", HELD.replace("FREE", str(free)))
    if says:
        with pytest.raises(HostNotReady, match=says) as raised:
            make_ready(debian, wants("ffmpeg"))
        assert "held by process 812 (apt-get)" in raised.value.detail
        return
    _, told = make_ready(debian, wants("ffmpeg"))
    waits = "another apt-get works there (812 (apt-get)): waiting for it, 0 s so far"
    assert [text for _, text, _ in told].count(waits) == 2
    calls = (tmp_path / "home/apt").read_text().splitlines()
    assert ["update" in call for call in calls] == [False, True, True, True, False]
    # Else apt would wait by itself, each of these times anew.
    assert all("DPkg::Lock::Timeout=0" in call for call in calls)


def test_what_cannot_be_installed_says_why(debian, tmp_path):
    program(tmp_path / "tools", "id", "echo 0")
    program(tmp_path / "tools", "apt-get", "echo 'E: no such package' >&2; exit 100")
    with pytest.raises(HostNotReady, match="and installing it failed") as raised:
        make_ready(debian, wants("ffmpeg"))
    assert "E: no such package" in raised.value.detail


def test_a_machine_without_debians_packages(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for each in folder.iterdir() if folder.is_dir() else ():
            if each.name != "dpkg-query" and not (tools / each.name).exists():
                (tools / each.name).symlink_to(each)
    shell = shell_at(tmp_path / "home", PATH=str(tools))
    with pytest.raises(HostNotReady, match="it has no dpkg-query"):
        make_ready(shell, wants("ffmpeg"))


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="no dpkg-query here")
def test_the_real_list_is_read(shell):
    make_ready(shell, wants("dpkg"))
