"""What a machine says of itself, by real shells and by their answers."""

import asyncio
import getpass
import os
import platform
import shutil
import subprocess
from dataclasses import replace

import pytest
from bootstrap.homes import program, shell_at

from skyward_nb.bootstrap import machine_facts
from skyward_nb.bootstrap.environment import check_machine
from skyward_nb.bootstrap.machine_facts import PROBE, Tool, described, probe, read_facts
from skyward_nb.words.errors import HostNotReady

SHELLS = [["sh"], ["dash"], ["bash"], ["bash", "--posix"], ["busybox", "sh"], ["ksh"]]


def test_this_machine(shell, tmp_path):
    found = asyncio.run(probe(shell))
    assert (found.system, found.machine) == (platform.system(), platform.machine())
    assert (found.user, found.uid) == (getpass.getuser(), os.getuid())
    assert found.libc == " ".join(platform.libc_ver())
    assert found.home == str(tmp_path / "home")
    assert found.cache == f"{found.home}/.cache/skyward_nb"
    assert (tmp_path / "home/.cache/skyward_nb").stat().st_mode & 0o777 == 0o700
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.memory > 1 << 28
    assert 0 < found.disk_free <= shutil.disk_usage(tmp_path).free + (1 << 30)
    assert found.shm_free > 0
    assert found.lacks == ()
    assert shell.rounds == 1


@pytest.mark.parametrize("words", SHELLS, ids=" ".join)
def test_any_shell_says_the_same(words, shell, tmp_path):
    if not shutil.which(words[0]):
        pytest.skip(f"no {words[0]} here")
    env = {**os.environ, "HOME": str(tmp_path / "home")}
    env.pop("XDG_CACHE_HOME", None)
    answer = subprocess.run([*words, "-c", PROBE], env=env, capture_output=True, check=True)
    told = read_facts(answer.stdout)
    expected = asyncio.run(probe(shell))
    for name in ("system", "machine", "libc", "user", "cache", "pythons", "uvs", "cores", "lacks"):
        assert getattr(told, name) == getattr(expected, name), name


def test_pythons_are_found_where_people_have_them(tmp_path):
    say = 'case "$*" in *version_info*) echo {} ;; esac'
    program(tmp_path / "home/.pyenv/versions/3.98.1/bin", "python3", say.format("3.98.1"))
    program(tmp_path / "home/.local/bin", "python3.97", say.format("3.97.0"))
    program(tmp_path / "path", "python3", say.format("3.96.2+h"))  # it has Python.h
    program(tmp_path / "path", "python3.95", "exit 1")
    program(tmp_path / "path/shims", "python3.94", say.format("3.94.0"))
    path = f"{tmp_path}/path:{tmp_path}/path/shims:{os.environ['PATH']}"
    found = asyncio.run(probe(shell_at(tmp_path / "home", PATH=path)))
    own = [
        tool for tool in found.pythons if tool.version.startswith("3.9") and len(tool.version) > 5
    ]
    assert own == [
        Tool("3.96.2", f"{tmp_path}/path/python3"),
        Tool("3.97.0", f"{tmp_path}/home/.local/bin/python3.97"),
        Tool("3.98.1", f"{tmp_path}/home/.pyenv/versions/3.98.1/bin/python3"),
    ]
    assert [each for each in found.headers if each.startswith(str(tmp_path))] == [own[0].path]


def test_a_folder_in_which_no_program_runs(tmp_path):
    """As on a home that is mounted noexec: what is written there cannot be run."""
    program(tmp_path / "path", "chmod", "exit 0")
    found = asyncio.run(
        probe(shell_at(tmp_path / "home", PATH=f"{tmp_path}/path:{os.environ['PATH']}"))
    )
    assert found.lacks == ("exec",)
    with pytest.raises(HostNotReady, match=r"skyward_nb cannot be run \(is it mounted noexec\?\)"):
        check_machine("here", found)
    check_machine("here", found, makes=False)  # as with an interpreter that is there
    assert not [*(tmp_path / "home/.cache/skyward_nb").glob(".run-*")]


def test_uvs_and_gpus(tmp_path):
    program(tmp_path / "path", "uv", "echo 'uv 0.9.1 (abc 2025)'")
    program(tmp_path / "home/.cache/skyward_nb/uv/0.13.9", "uv", "echo uv 0.13.9")
    program(
        tmp_path / "path",
        "nvidia-smi",
        '[ "$1" = --query-gpu=driver_version,name ] && for i in 1 2; do echo "570.86.15, NVIDIA H200"; done',
    )
    path = f"{tmp_path}/path:{os.environ['PATH']}"
    found = asyncio.run(probe(shell_at(tmp_path / "home", PATH=path)))
    assert found.uvs[:2] == (
        Tool("0.13.9", f"{tmp_path}/home/.cache/skyward_nb/uv/0.13.9/uv"),
        Tool("0.9.1", f"{tmp_path}/path/uv"),
    )
    assert (found.gpus, found.driver) == (("NVIDIA H200", "NVIDIA H200"), "570.86.15")


def test_a_driver_that_fails_is_no_gpu_and_its_words_are_kept(tmp_path):
    said = "echo NVIDIA-SMI has failed, as no driver answers >&2; exit 9"
    program(tmp_path / "path", "nvidia-smi", said)
    path = f"{tmp_path}/path:{os.environ['PATH']}"
    found = asyncio.run(probe(shell_at(tmp_path / "home", PATH=path)))
    assert (found.gpus, found.driver) == ((), "")
    assert found.gpu_trouble == "NVIDIA-SMI has failed, as no driver answers it ended with status 9"
    assert f"no GPU: {found.gpu_trouble}" in list(described(found))


def test_another_cache_and_one_that_cannot_be(tmp_path):
    home = shell_at(tmp_path / "home", SKYWARD_CACHE_DIR=str(tmp_path / "big disk"))
    assert asyncio.run(probe(home)).cache == str(tmp_path / "big disk")
    (tmp_path / "file").touch()
    home = shell_at(tmp_path / "home", SKYWARD_CACHE_DIR=str(tmp_path / "file/cache"))
    found = asyncio.run(probe(home))
    assert found.lacks == ("cache",)
    assert found.disk_free > 0


def test_what_a_login_shell_says_before_is_passed_over():
    noise = b"Welcome to gpu1!\nhome=/nowhere\nYou have mail\n"
    found = read_facts(noise + b"\nsky=facts\nhome=/home/me\nlibc=musl 1.2.5\nend=facts\nbye\n")
    assert (found.home, found.libc, found.cores, found.memory) == ("/home/me", "musl 1.2.5", 1, 0)


@pytest.mark.parametrize("out", [b"", b"sky=facts\nhome=/x\n", b"This account is closed.\n"])
def test_half_an_answer_is_none(out):
    assert read_facts(out) is None


def test_a_machine_that_hangs_is_named(shell, monkeypatch):
    monkeypatch.setattr(machine_facts, "PROBE", "sleep 600")
    monkeypatch.setattr(machine_facts, "_LIMIT", 0.2)
    with pytest.raises(HostNotReady, match="here: it did not say within"):
        asyncio.run(probe(shell))


def test_a_machine_that_does_not_say_is_named_with_what_it_said(tmp_path):
    class Closed:
        name = "gpu1"

        async def run(self, script, **_):
            from skyward_nb.bootstrap.remote_shell import ScriptResult

            return ScriptResult(1, b"This account is closed.\n", "")

    with pytest.raises(HostNotReady, match=r"gpu1: its /bin/sh.*ssh gpu1 uname") as raised:
        asyncio.run(probe(Closed()))
    assert raised.value.host == "gpu1"
    assert "This account is closed." in str(raised.value)


def test_what_it_is_is_told_in_a_few_lines(shell):
    found = asyncio.run(probe(shell))
    said = "\n".join(described(found))
    assert f"{found.system} {found.machine}, {found.libc}, {found.cores} cores, " in said
    assert f"user {found.user} ({found.uid}), shell " in said
    assert f"for {found.cache}, " in said
    gpu = ("NVIDIA L4", "NVIDIA L4")
    other = replace(found, gpus=gpu, driver="570.1", pythons=(), uvs=(), lacks=("tar",))
    lines = [*described(other)]
    for line in ("no Python", "no uv", "2 × NVIDIA L4, driver 570.1", "it lacks tar"):
        assert line in lines


def test_a_variable_of_a_folder_is_set_there_or_told(tmp_path, monkeypatch):
    """None of these is at the root, also where nobody looks whether the variable is set."""
    monkeypatch.delenv("USER", raising=False)
    big = tmp_path / "big"
    home = shell_at(tmp_path / "home", SKY_T_BIG=str(big), SKY_T_EMPTY="")
    for cache, place in (
        ("$SKY_T_BIG/$USER", f"{big}/{getpass.getuser()}"),
        ("~/big", f"{tmp_path}/home/big"),
        (str(big), str(big)),
    ):
        found = asyncio.run(probe(home, cache))
        assert (found.cache, found.lacks, found.is_apart) == (place, (), True)
    for name in ("SKY_T_UNSET", "SKY_T_EMPTY"):
        cache = f"${name}{tmp_path}/made"
        says = f"here: cache=${name}{tmp_path}/made: {name} is not set there in a shell without"
        with pytest.raises(HostNotReady) as raised:
            asyncio.run(probe(home, cache))
        assert says in str(raised.value)
        assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("mode", [0o777, 0o2775, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused_and_nothing_in_it_runs(tmp_path, mode):
    shared = tmp_path / "shared"
    program(shared / "uv/0.13.9", "uv", f"touch {tmp_path}/ran; echo uv 0.13.9")
    shared.chmod(mode)
    home = shell_at(tmp_path / "home")
    found = asyncio.run(probe(home, str(shared)))
    assert found.lacks == ("privacy",)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(HostNotReady, match=r"others may write to .*chmod go-w") as raised:
        check_machine("here", found)
    assert f"cache={shared}/skyward_nb" in str(raised.value)
    below = asyncio.run(probe(home, f"{shared}/skyward_nb"))
    assert below.lacks == () and (shared / "skyward_nb").stat().st_mode & 0o777 == 0o700
    shared.chmod(0o755)
    (tmp_path / "link").symlink_to(shared)
    found = asyncio.run(probe(home, f"{tmp_path}/link"))
    assert (found.lacks, found.cache) == ((), str(shared))
    assert (tmp_path / "ran").exists()


def test_where_an_interpreter_is_named_no_other_is_looked_for(shell):
    found = asyncio.run(probe(shell, interpreter="/usr/bin/python3"))
    every = asyncio.run(probe(shell))
    assert found.names_python and not every.names_python
    assert (found.pythons, found.uvs) == ((), ())
    assert replace(found, pythons=every.pythons, uvs=every.uvs, headers=every.headers, names_python=False,
                   shm_free=0, disk_free=0) == replace(every, shm_free=0, disk_free=0)  # fmt: skip
    assert not [line for line in described(found) if "Python" in line or "uv" in line]
