"""Environments, made by the real uv where an index of packages is reached."""

import asyncio
import getpass
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest
from bootstrap.homes import PYTHON, UV, Told, facts_of, make_ready, program, shell_at
from pools import values

from skyward_nb.bootstrap import requirements, version_locks
from skyward_nb.bootstrap.environment import Environment, ready
from skyward_nb.bootstrap.local_shell import LocalShell
from skyward_nb.bootstrap.machine_facts import MachineFacts, Tool, probe
from skyward_nb.bootstrap.scripts import LOCK
from skyward_nb.bootstrap.uv import version as uv_version
from skyward_nb.words.errors import HostNotReady, OptionError
from skyward_nb.words.image import Image

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


def envs(home):
    return home / "home/.cache/skyward_nb/envs"


def folders(path):
    return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.exists() else []


def there(environment, code):
    words = [environment.python, "-P", "-c", code]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": environment.package}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def few_needs(monkeypatch):
    """Environments have what agents and ranks import, and no more: where the rest is not the subject."""
    monkeypatch.setattr(requirements, "BESIDE", ())


# ── made, and found again ───────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def whole(index, tmp_path_factory):
    """A machine with an environment of all needs and two packages more, how it was made, and its home."""
    home = tmp_path_factory.mktemp("whole")
    host = shell_at(home / "home", **index)
    facts = facts_of(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "client"))
        made, told = make_ready(host, SIX, facts)
    return Whole(host, facts, made, told, home)


class Whole(NamedTuple):
    host: LocalShell
    facts: MachineFacts
    made: Environment
    told: Told
    home: Path


SIX = Image(pip=["six", "iniconfig<2"])


def test_an_environment_is_made_and_found_again_in_one_round(whole):
    host, facts, made, told, home = whole
    assert made.python == f"{envs(home)}/{made.digest}/bin/python"
    names = ["msgspec", "six", "iniconfig", "cloudpickle", "IPython"]
    code = f"from importlib.metadata import version; print([version(n) for n in {names}])"
    found = dict(zip(names, eval(there(made, code)), strict=True))
    assert found["msgspec"] == version("msgspec")
    assert found["cloudpickle"] == version("cloudpickle")
    assert found["iniconfig"].startswith("1.")
    assert "Installed" in told.text()
    assert {phase for phase, _, done in told if done} == {"environment", "package"}
    assert folders(envs(home)) == [made.digest]

    before = host.rounds
    again, told = make_ready(host, SIX, facts)
    assert (again, host.rounds - before) == (made, 1)
    assert "Installed" not in told.text()


def test_agent_and_ranks_can_be_imported_there(whole):
    made = whole.made
    modules = ["agent", "forge", "rank", "rank_shell", "telemetry", "__main__"]
    imports = "; ".join(f"import skyward_nb.node.{name}" for name in modules)
    code = f"{imports}; import skyward_nb as sky; print(sky.shard, sky.__file__)"
    assert made.package in there(made, code)
    # Programs of packages run where the folder has come to lie.
    program_there = Path(made.python).with_name("ipython")
    said = subprocess.run([program_there, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == version("ipython")


def test_ranks_live_in_it(whole, make, monkeypatch, tmp_path):
    made = whole.made
    monkeypatch.setattr(sys, "executable", made.python)
    monkeypatch.setenv("PYTHONPATH", made.package)
    monkeypatch.chdir(tmp_path)
    said = values(make(), "import sys, six, skyward_nb\n(sys.executable, skyward_nb.__file__)")
    assert said == [(made.python, f"{made.package}/skyward_nb/__init__.py")] * 2


def test_what_it_is_made_of_makes_its_name(index, tmp_path):
    """A fake uv makes folders alone: what is asked for is another's affair here."""
    made = []
    tool = fake_uv(tmp_path)
    shell = shell_at(tmp_path / "home")
    facts = facts_of(shell, uvs=(tool,))
    images = [
        (Image(), facts),
        (Image(pip=["six"]), facts),
        (Image(), replace(facts, driver="570.1")),
        (Image(), replace(facts, libc="glibc 2.99")),
        (Image(), replace(facts, pythons=(Tool(PYTHON.version, "/usr/local/elsewhere/python"),))),
        (Image(env={"UV_TORCH_BACKEND": "cpu"}), facts),
        (Image(env={"UV_DEFAULT_INDEX": "https://me:hunter2@host/simple"}), facts),
    ]
    for image, at in images:
        made.append(make_ready(shell, image, at)[0].digest)
    assert len({*made}) == len(images)
    same = [
        (Image(env={"A": "1"}, includes=["json"], python=MINOR), facts),
        (Image(), replace(facts, disk_free=1, cores=99)),
    ]
    for image, at in same:
        assert make_ready(shell, image, at)[0].digest == made[0]
    image = Image(env={"UV_DEFAULT_INDEX": "https://you:other@host/simple"})
    assert make_ready(shell, image, facts)[0].digest == made[-1]


@pytest.mark.usefixtures("few_needs")
def test_two_at_once_make_one(host, index, tmp_path):
    """The one goes on as the other waits for it."""
    other = shell_at(tmp_path / "home", **index)
    waits = tmp_path / "waits"
    body = f'[ "$1" != venv ] || timeout 60 sh -c "until [ -e {waits} ]; do sleep 0.05; done"'
    uv = program(tmp_path / "patient", "uv", f'{body}\nexec {UV.path} "$@"')
    facts = facts_of(host, uvs=(Tool(UV.version, str(uv)),))
    told = Told()

    def tell(phase, detail, done):
        told(phase, detail, done)
        if "another one makes" in detail:
            waits.touch()

    async def both():
        image = Image(pip=["six"])
        return await asyncio.gather(*(ready(shell, facts, image, tell) for shell in (host, other)))

    one, two = asyncio.run(both())
    assert one == two
    assert sum("Installed" in detail for _, detail, _ in told) == 1
    assert "another one makes" in told.text()
    assert folders(envs(tmp_path)) == [one.digest]


@pytest.mark.usefixtures("few_needs")
def test_the_same_without_flock(host, index, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for each in Path(folder).iterdir():
            if each.name != "flock" and not (tools / each.name).exists():
                (tools / each.name).symlink_to(each)
    alone = [shell_at(tmp_path / "home", PATH=str(tools), **index) for _ in range(2)]
    facts = facts_of(alone[0])

    async def both():
        return await asyncio.gather(*(ready(shell, facts, Image(), Told()) for shell in alone))

    one, two = asyncio.run(both())
    assert one == two
    # A holder that has died holds nothing.
    held = envs(tmp_path) / f".held-{one.digest}"
    assert not held.exists()
    held.mkdir()
    (held / "by").write_text(f"4194999 {os.uname().nodename}\n")
    Path(one.python).unlink()
    assert make_ready(alone[0], Image(), facts)[0] == one
    assert Path(one.python).exists()
    assert not held.exists()


def test_a_lock_of_another_host_is_waited_for_with_a_word(tmp_path):
    """Whether its holder lives cannot be seen from here."""
    held = tmp_path / ".held-env"
    held.mkdir()
    (held / "by").write_text("17 elsewhere\n")
    script = f"PATH={tmp_path}:$PATH\nflock() {{ return 1; }}\nfinal={tmp_path}/env\n{LOCK}\nlock\necho mine"
    command = ["/bin/sh", "-c", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waits:
        said = ""
        while "rm -r" not in said:
            said = waits.stderr.readline()
        assert f"process 17 on elsewhere makes {tmp_path}/env: waiting" in said
        assert f"rm -r {held}" in said
        shutil.rmtree(held)
        assert waits.stdout.read() == "mine\n"


@pytest.fixture(scope="module")
def made_once(index, tmp_path_factory):
    """A machine with an environment of few needs, which each test has made anew, and its home."""
    home = tmp_path_factory.mktemp("made")
    host = shell_at(home / "home", **index)
    facts = facts_of(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home / "client"))
        patch.setattr(requirements, "BESIDE", ())
        made, told = make_ready(host, Image(), facts)
    return Whole(host, facts, made, told, home)


@pytest.mark.usefixtures("few_needs")
def test_one_that_lost_its_python_is_made_anew_and_what_a_kill_left_is_removed(made_once):
    host, facts, made, _, home = made_once
    Path(made.python).unlink()
    half = envs(home) / f".new-{made.digest}.1"
    half.mkdir()
    again, told = make_ready(host, Image(), facts)
    assert again == made
    assert "Installed" in told.text()
    assert there(made, "import msgspec; print('well')") == "well"
    assert folders(envs(home)) == [made.digest]


@pytest.mark.usefixtures("few_needs")
def test_one_that_lost_files_is_made_anew(made_once):
    host, facts, made, *_ = made_once
    packages = Path(made.python).parents[1] / f"lib/python{MINOR}/site-packages"
    shutil.rmtree(packages / "msgspec")
    assert make_ready(host, Image(), facts)[0] == made
    assert there(made, "import msgspec; print('well')") == "well"


@pytest.mark.usefixtures("few_needs")
def test_a_path_may_have_spaces(host, tmp_path):
    link = tmp_path / "a place/python"
    link.parent.mkdir()
    link.symlink_to(PYTHON.path)
    made, _ = make_ready(host, Image(), facts_of(host, pythons=(Tool(PYTHON.version, str(link)),)))
    assert there(made, "import msgspec; print('well')") == "well"


@pytest.mark.usefixtures("few_needs")
def test_later_hosts_get_what_the_first_one_got(index, tmp_path):
    one = shell_at(tmp_path / "home", **index)
    facts = facts_of(one)
    made, _ = make_ready(one, Image(pip=["iniconfig<2"]), facts)
    noted = version_locks.known(made.digest)
    assert f"msgspec=={version('msgspec')}" in noted
    older = [line if "iniconfig" not in line else "iniconfig==1.0.0" for line in noted]
    version_locks.keep(made.digest, b"sky=packages\n" + "\n".join(older).encode())
    two = shell_at(tmp_path / "other", **index)
    again, _ = make_ready(two, Image(pip=["iniconfig<2"]), facts_of(two))
    assert again.digest == made.digest
    code = "from importlib.metadata import version; print(version('iniconfig'))"
    assert there(again, code) == "1.0.0"


@pytest.mark.usefixtures("few_needs")
def test_what_can_not_be_had_any_more_is_resolved_anew(made_once):
    host, facts, made, *_ = made_once
    Path(made.python).unlink()
    version_locks.keep(made.digest, b"sky=packages\nmsgspec==0.0.0\n")
    again, told = make_ready(host, Image(), facts)
    assert again == made
    assert "not to be had at these versions: trying others" in told.text()
    assert f"msgspec=={version('msgspec')}" in version_locks.known(made.digest)


@pytest.mark.usefixtures("few_needs")
def test_an_index_without_the_versions_that_run_here(host, monkeypatch):
    monkeypatch.setattr(requirements, "_version_here", lambda requirement: "0.0.1")
    made, told = make_ready(host, Image(pip=["six"]))
    assert "not to be had at these versions: trying others" in told.text()
    assert there(made, "import msgspec, six; print('well')") == "well"


# ── what cannot be made ─────────────────────────────────────────────────────────────────


def refused(shell, image, facts=None):
    with pytest.raises(HostNotReady) as raised:
        make_ready(shell, image, facts)
    assert raised.value.host == shell.name
    return str(raised.value)


@pytest.mark.usefixtures("few_needs")
def test_versions_that_do_not_fit_together(host, tmp_path):
    text = refused(host, Image(pip=["six>99"]))
    assert "no versions of its packages fit together" in text
    assert "six>99" in text
    assert folders(envs(tmp_path)) == []


def test_an_index_that_is_not_reached(tmp_path):
    shell = shell_at(tmp_path / "home")
    facts = facts_of(shell)
    address = "https://me:hunter2@127.0.0.1:9/simple"
    text = refused(shell, Image(env={"UV_DEFAULT_INDEX": address, "UV_HTTP_RETRIES": "0"}), facts)
    assert "it does not reach 127.0.0.1:9" in text
    for way in ("UV_DEFAULT_INDEX", "HTTPS_PROXY", "interpreter="):
        assert way in text
    assert "hunter2" not in text
    assert folders(envs(tmp_path)) == []


@pytest.mark.usefixtures("few_needs")
def test_no_egress_but_all_that_is_needed_is_in_uvs_cache(online, tmp_path):
    cut = shell_at(tmp_path / "other", **online, HTTPS_PROXY="http://127.0.0.1:9")
    image = Image(env={"UV_HTTP_RETRIES": "0"})
    made, told = make_ready(cut, image, facts_of(cut))
    assert there(made, "import msgspec; print('well')") == "well"
    assert "is not reached: trying without it" in told.text()


def test_no_python_and_none_to_be_had(tmp_path):
    shell = shell_at(tmp_path / "home")
    facts = facts_of(shell, pythons=(Tool("3.6.1", "/usr/bin/python3.6"),))
    mirror = {"UV_PYTHON_INSTALL_MIRROR": "https://127.0.0.1:9", "UV_HTTP_RETRIES": "0"}
    text = refused(shell, Image(env=mirror), facts)
    assert f"there is no Python {MINOR} (it has 3.6.1)" in text
    assert f"Install python{MINOR} there" in text
    assert "UV_PYTHON_INSTALL_MIRROR" in text
    assert folders(envs(tmp_path)) == []


def test_another_system_and_no_place(shell):
    facts = facts_of(shell)
    assert "it runs Darwin; nodes are Linux" in refused(
        shell, Image(), replace(facts, system="Darwin")
    )
    text = refused(shell, Image(), replace(facts, lacks=("cache",)))
    assert f"{facts.cache} cannot be made or written by {getpass.getuser()}" in text
    assert "SKYWARD_CACHE_DIR" in text
    assert "it lacks tar, gzip" in refused(shell, Image(), replace(facts, lacks=("tar", "gzip")))


def test_another_python_is_refused_before_anything_is_asked(shell):
    facts = facts_of(shell)
    with pytest.raises(OptionError, match=r"python=3\.1"):
        make_ready(shell, Image(python="3.1"), facts)
    assert shell.rounds == 1


def test_a_disk_that_has_clearly_too_little_room_is_told_before_anything_is_sent(shell, tmp_path):
    facts = replace(facts_of(shell), disk_free=20_000_000)
    error = refused(shell, Image(), facts)
    assert "20 MB is free for" in error and "SKYWARD_CACHE_DIR" in error
    assert folders(envs(tmp_path).parent) == []
    # One that is there needs none.
    assert make_ready(shell, Image(interpreter=sys.executable), facts)[0].python == sys.executable


@pytest.fixture
def small(tmp_path):
    """Makes disks of a few megabytes."""
    made = []

    def mount(path, size):
        path.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(path)]
        if os.getuid() or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("a small disk takes root to mount")
        made.append(path)

    yield mount
    for path in made:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("size", ["64k", "300k", "12m"])
def test_a_full_disk_leaves_nothing_half_made(host, small, tmp_path, size):
    cache = tmp_path / "home/.cache/skyward_nb"
    small(cache, size)
    # There was room as it was asked.
    text = refused(host, Image(), facts_of(host, disk_free=10**9))
    assert "the disk is full" in text
    assert f"is free for {cache}" in text
    assert "symbolic link" in text
    assert [*cache.rglob("*/bin/python")] == []
    assert list(cache.rglob(".new-*")) == []


def test_a_disk_too_small_for_uv(host, small, tmp_path):
    cache = tmp_path / "home/.cache/skyward_nb"
    small(cache, "8m")
    text = refused(host, Image(), facts_of(host, uvs=(), disk_free=10**9))
    assert "uv, which makes its environment, did not get there: the disk is full" in text
    assert [each for each in cache.rglob("*") if each.is_file() and each.stat().st_size] == []


# ── uv itself ───────────────────────────────────────────────────────────────────────────


def fake_uv(folder, body="") -> Tool:
    """Makes folders in place of environments, and writes down how it was called."""
    log = folder / "calls"
    text = f"""
{{ echo "argv: $*"; env | grep ^UV_; }} >>{log}
{body}
case "$1" in
  venv) for last; do :; done; mkdir -p "$last/bin"; printf '#!/bin/sh\\n' >"$last/bin/python"
        chmod 700 "$last/bin/python" ;;
  pip) [ "$2" = install ] && sed 's/^/stdin: /' >>{log} ;;
esac
exit 0"""
    return Tool(uv_version(), str(program(folder / "fake", "uv", text)))


def test_passwords_are_in_no_argv(shell, tmp_path):
    facts = facts_of(shell, uvs=(fake_uv(tmp_path),))
    image = Image(
        pip=["x @ https://me:hunter3@host/x.whl"],
        env={"UV_DEFAULT_INDEX": "https://me:hunter2@host/simple", "TOKEN": "hunter4"},
    )
    make_ready(shell, image, facts)
    lines = (tmp_path / "calls").read_text().splitlines()
    argv = "\n".join(line for line in lines if line.startswith("argv:"))
    assert "pip install" in argv
    assert "hunter" not in argv
    assert "UV_DEFAULT_INDEX=https://me:hunter2@host/simple" in lines
    assert any(line.startswith("stdin: x") and "hunter3" in line for line in lines)
    assert "hunter4" not in "\n".join(lines)
    files = [each for each in (tmp_path / "home").rglob("*") if each.is_file()]
    assert not [each for each in files if b"hunter" in each.read_bytes()]


def test_where_packages_come_from_here_is_told_there(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "https://ours/simple")
    monkeypatch.setenv("UV_CACHE_DIR", "/of/this/machine")
    facts = facts_of(shell, uvs=(fake_uv(tmp_path),))
    make_ready(shell, Image(env={"UV_HTTP_TIMEOUT": "5"}), facts)
    lines = (tmp_path / "calls").read_text().splitlines()
    assert {"UV_EXTRA_INDEX_URL=https://ours/simple", "UV_HTTP_TIMEOUT=5"} <= {*lines}


def test_torch_is_taken_from_the_index_where_its_own_is_not_reached(shell, tmp_path):
    body = (
        'case "$*" in *--torch-backend=auto*) '
        'echo "error sending request for url (https://download.pytorch.org/whl/cu128/torch/)" >&2; '
        "exit 2 ;; esac"
    )
    facts = facts_of(shell, uvs=(fake_uv(tmp_path, body),))
    _, told = make_ready(shell, Image(pip=["torch"]), facts)
    assert "download.pytorch.org is not reached: trying without it" in told.text()
    calls = [
        line for line in (tmp_path / "calls").read_text().splitlines() if "pip install" in line
    ]
    assert ["--torch-backend" in line for line in calls] == [True, False]


@pytest.mark.usefixtures("few_needs")
def test_uv_goes_along_once_and_nobody_else_reads_it(host, tmp_path):
    made, told = make_ready(host, Image(), facts_of(host, uvs=()))
    path = tmp_path / f"home/.cache/skyward_nb/uv/{uv_version()}/uv"
    assert path.stat().st_mode & 0o777 == 0o700
    assert "sending uv" in told.text()
    cache = tmp_path / "home/.cache/skyward_nb"
    paths = [cache, *cache.iterdir(), *cache.glob("*/*")]
    assert {cache, Path(made.python).parents[1], Path(made.package)} <= {*paths}
    assert not [each for each in paths if each.stat().st_mode & 0o077], "nobody else reads it"
    told = Told()
    # Its own Python may be of another minor than this one.
    facts = replace(asyncio.run(probe(host)), pythons=facts_of(host).pythons)
    asyncio.run(ready(host, facts, Image(pip=["six"]), told))
    assert "sending uv" not in told.text()


@pytest.mark.usefixtures("few_needs")
def test_uv_is_fetched_for_another_kind_of_machine(host, tmp_path):
    facts = facts_of(host, libc="musl 1.2.5", uvs=())
    made, told = make_ready(host, Image(), facts)
    assert "fetching uv" in told.text()
    path = tmp_path / f"home/.cache/skyward_nb/uv/{uv_version()}/uv"
    assert subprocess.run([path, "--version"], capture_output=True).returncode == 0
    assert folders(path.parent.parent) == [uv_version()]
    assert there(made, "import msgspec; print('well')") == "well"


def test_uv_that_cannot_be_had_is_told_with_what_to_do(tmp_path):
    shell = shell_at(
        tmp_path / "home",
        HTTPS_PROXY="http://127.0.0.1:9",
        PIP_INDEX_URL="https://127.0.0.1:9/simple",
        PIP_CONFIG_FILE="/dev/null",
        PIP_FIND_LINKS="",
        PIP_RETRIES="0",
    )
    text = refused(shell, Image(), facts_of(shell, libc="musl 1.2.5", uvs=()))
    assert f"uv {uv_version()}, which makes its environment, could not be fetched there" in text
    assert "musl 1.2.5" in text
    assert folders(tmp_path / "home/.cache/skyward_nb/uv") == []
