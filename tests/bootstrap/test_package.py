"""The package on its way to a machine."""

import asyncio
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from bootstrap.homes import BOOT, PYTHON, facts_of, shell_at

from skyward_nb.bootstrap.package import Package, place, ship
from skyward_nb.words.errors import HostNotReady


def test_the_same_files_give_the_same_bytes():
    one, two = Package(), Package()
    assert (one.digest, one.archive) == (two.digest, two.archive)


def test_it_has_what_ranks_import_and_nothing_else():
    names = tarfile.open(fileobj=io.BytesIO(Package().archive)).getnames()
    assert {"skyward_nb/__init__.py", "skyward_nb/node/agent.py"} <= {*names}
    assert not [name for name in names if "pycache" in name or "tests" in name.split("/")]
    assert all(name.startswith("skyward_nb/") for name in names)


def test_it_is_sent_once_and_can_be_imported(shell, tmp_path):
    facts = facts_of(shell)
    package = Package()
    folder = asyncio.run(ship(shell, facts, package))
    assert folder == place(facts, package.digest)
    assert asyncio.run(ship(shell, facts)) == folder
    there = "import skyward_nb, os; print(os.path.dirname(skyward_nb.__file__))"
    words = [PYTHON.path, "-P", "-B", "-S", "-c", there]
    said = subprocess.run(words, env={"PYTHONPATH": folder}, capture_output=True, text=True)
    assert said.stdout.strip() == f"{folder}/skyward_nb"
    code = tmp_path / "home/.cache/skyward_nb/code"
    assert [each.name for each in code.iterdir() if each.is_dir()] == [package.digest]
    assert not [each for each in code.rglob("*") if each.stat().st_mode & 0o077]


def test_one_whose_files_were_removed_is_sent_again(shell):
    """Some machines remove what nobody has read for weeks, and leave the folders."""
    facts, package = facts_of(shell), Package()
    folder = Path(asyncio.run(ship(shell, facts, package)))
    assert all(each.stat().st_mtime > 1e9 for each in folder.rglob("*.py")), "none is old now"
    (folder / "skyward_nb/words/errors.py").unlink()
    old = folder / "skyward_nb/node/agent.py"
    os.utime(old, (0, 0))
    asyncio.run(ship(shell, facts, package))
    assert (folder / "skyward_nb/words/errors.py").exists()
    os.utime(old, (0, 0))
    asyncio.run(ship(shell, facts, package))
    assert old.stat().st_mtime > 0, "one that is used is not old"


def test_several_at_once_make_one(tmp_path):
    shells = [shell_at(tmp_path / "home") for _ in range(4)]
    facts = facts_of(shells[0])

    async def all_of_them():
        return await asyncio.gather(*(ship(shell, facts) for shell in shells))

    assert len({*asyncio.run(all_of_them())}) == 1
    code = tmp_path / "home/.cache/skyward_nb/code"
    assert len([each for each in code.iterdir() if each.is_dir()]) == 1


def test_what_was_left_half_sent_is_removed(shell, tmp_path):
    package = Package()
    half = tmp_path / f"home/.cache/skyward_nb/code/.new-{package.digest}.{BOOT}.1/skyward_nb"
    half.mkdir(parents=True)
    folder = asyncio.run(ship(shell, facts_of(shell), package))
    assert not half.exists()
    assert (tmp_path / folder / "skyward_nb/__init__.py").exists()


def test_an_archive_that_is_torn_leaves_nothing(shell, tmp_path):
    package = Package()
    package.archive = package.archive[:-1000]
    with pytest.raises(HostNotReady, match="skyward_nb could not be copied to"):
        asyncio.run(ship(shell, facts_of(shell), package))
    code = tmp_path / "home/.cache/skyward_nb/code"
    assert [each for each in code.iterdir() if each.is_dir()] == []
