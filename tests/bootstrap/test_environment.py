"""Environments, made by the real uv where an index of packages is reached."""

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest
from bootstrap.homes import (
    BOOT,
    MINOR,
    PYTHON,
    UV,
    Told,
    envs,
    facts_of,
    fake_uv,
    folders,
    make_ready,
    program,
    shell_at,
    there,
)
from bootstrap.local_shell import LocalShell
from pools import values

from skyward_nb.bootstrap import environment, requirements, version_locks
from skyward_nb.bootstrap.environment import Environment, ready
from skyward_nb.bootstrap.folder_scripts import LOCK
from skyward_nb.bootstrap.machine_facts import MachineFacts, Tool
from skyward_nb.words.image import Image

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


@pytest.mark.extensive
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


@pytest.mark.extensive
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


@pytest.mark.extensive
def test_a_lock_of_another_host_is_waited_for_with_a_word(tmp_path):
    """Whether its holder lives cannot be seen from here."""
    held = tmp_path / ".held-env"
    held.mkdir()
    (held / "by").write_text("17 elsewhere\n")
    script = (
        f"PATH={tmp_path}:$PATH\nflock() {{ return 1; }}\nfinal={tmp_path}/env\n{LOCK}\necho mine"
    )
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
    half = envs(home) / f".new-{made.digest}.{BOOT}.1"
    half.mkdir()
    again, told = make_ready(host, Image(), facts)
    assert again == made
    assert "Installed" in told.text()
    assert there(made, "import msgspec; print('well')") == "well"
    assert folders(envs(home)) == [made.digest]


@pytest.mark.extensive
@pytest.mark.usefixtures("few_needs")
def test_one_that_lost_files_is_made_anew(made_once):
    host, facts, made, *_ = made_once
    packages = Path(made.python).parents[1] / f"lib/python{MINOR}/site-packages"
    shutil.rmtree(packages / "msgspec")
    assert make_ready(host, Image(), facts)[0] == made
    assert there(made, "import msgspec; print('well')") == "well"


@pytest.mark.extensive
@pytest.mark.usefixtures("few_needs")
def test_a_path_may_have_spaces(host, tmp_path):
    link = tmp_path / "a place/python"
    link.parent.mkdir()
    link.symlink_to(PYTHON.path)
    made, _ = make_ready(host, Image(), facts_of(host, pythons=(Tool(PYTHON.version, str(link)),)))
    assert there(made, "import msgspec; print('well')") == "well"


@pytest.mark.extensive
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


@pytest.mark.extensive
@pytest.mark.usefixtures("few_needs")
def test_what_can_not_be_had_any_more_is_resolved_anew(made_once):
    host, facts, made, *_ = made_once
    Path(made.python).unlink()
    version_locks.keep(made.digest, b"sky=packages\nmsgspec==0.0.0\n")
    again, told = make_ready(host, Image(), facts)
    assert again == made
    assert "these versions are not available: trying others" in told.text()
    assert f"msgspec=={version('msgspec')}" in version_locks.known(made.digest)


@pytest.mark.usefixtures("few_needs")
def test_an_index_without_the_versions_that_run_here(host, monkeypatch):
    monkeypatch.setattr(requirements, "_version_here", lambda requirement: "0.0.1")
    made, told = make_ready(host, Image(pip=["six"]))
    assert "these versions are not available: trying others" in told.text()
    assert there(made, "import msgspec, six; print('well')") == "well"


@pytest.mark.parametrize(
    ("apart", "place"),
    [(False, "/home/me/.local/share/uv/python"), (True, "/scratch/me/uv/python")],
)
def test_a_python_that_uv_has_brought_changes_no_name(shell, apart, place):
    brought = Tool(PYTHON.version, f"{place}/cpython-{PYTHON.version}-linux/bin/python3")
    where = {"home": "/home/me", "cache": "/scratch/me", "is_apart": apart}
    before = environment._Wanted(facts_of(shell, pythons=(), **where), Image())
    after = environment._Wanted(facts_of(shell, pythons=(brought,), **where), Image())
    assert (before.digest, before.python) == (after.digest, None)
    other = Tool(PYTHON.version, "/opt/uv/python/bin/python3")
    found = environment._Wanted(facts_of(shell, pythons=(brought, other), **where), Image())
    assert found.python == other and found.digest != before.digest
