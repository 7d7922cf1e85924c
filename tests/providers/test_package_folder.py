"""The folder of packages that this Python lacks: from an address, of whom, and when two make it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from providers.wheels import wheel

from skyward_nb.bootstrap import version_locks
from skyward_nb.providers import package_folder
from skyward_nb.providers.package_folder import folder_for, packages_in
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    return tmp_path / "cache"


def made(*pip):
    return asyncio.run(folder_for(Image(pip=pip), lambda _: None))


def test_a_package_from_an_address(cache, tmp_path):
    address = f"sky-t-one @ file://{wheel(tmp_path / 'wheels', 'sky-t-one', '1.0')}"
    folder = Path(made(address))
    assert (folder / "sky_t_one.py").is_file()
    assert packages_in(str(folder)) == [address]
    # One whose list a cleaner of caches has taken is made anew.
    (folder / "packages.txt").unlink()
    shutil.rmtree(folder / "sky_t_one-1.0.dist-info")
    assert made(address) == str(folder)
    assert (folder / "sky_t_one-1.0.dist-info").is_dir()


@pytest.mark.parametrize(
    "said", [" + p @ https://u:****@h/p.whl", " + p==1.0 (from https://u:****@h/p.whl)"]
)
def test_an_address_is_asked_for_as_it_was_typed(cache, monkeypatch, said):
    """And not as uv says it, which is another way where its cache has it, and with its password masked in both."""
    asked, text = [], "P @ https://u:secret@h/p.whl"

    async def uv(words, _variables, given=""):
        asked.append(given)
        return 0, "", f" + einops==0.8\n{said}\n" if "--dry-run" in words else ""

    monkeypatch.setattr(package_folder, "_uv", uv)
    folder = made(text)
    assert asked[-1].splitlines() == ["einops==0.8", text]
    assert packages_in(folder)[0] == "einops==0.8"
    assert "secret" not in packages_in(folder)[1]


def test_what_another_process_has_just_put_there_is_not_removed(cache, tmp_path, monkeypatch):
    cache.mkdir()
    remove, removed = shutil.rmtree, []

    def folder(name):
        (tmp_path / name).mkdir()
        for each in ("packages.txt", "constraints.txt"):
            (tmp_path / name / each).touch()
        return tmp_path / name

    def one_comes_first(path, **options):
        if not (cache / "f").exists():
            folder("theirs").replace(cache / "f")
        removed.append((Path(path) / "packages.txt").exists())
        remove(path, **options)

    monkeypatch.setattr(package_folder.shutil, "rmtree", one_comes_first)
    package_folder._put_in_place(folder("ours"), cache / "f")
    assert (cache / "f" / "packages.txt").exists()
    assert not any(removed)


def test_a_folder_that_others_can_write_is_not_used(cache):
    (cache / "beside").mkdir(parents=True)
    (cache / "beside").chmod(0o777)
    with pytest.raises(OptionError, match="SKYWARD_CACHE_DIR"):
        made("sky-t-one")


def test_no_module_of_a_package_hides_one_of_python(cache, tmp_path, monkeypatch):
    """Ranks have the folder on PYTHONPATH, which comes before Python's own modules."""
    more = ("enum.py", "asyncio/__init__.py", "test/__init__.py", "sky_t_two/enum.py")
    wheel(tmp_path / "wheels", "sky-t-one", "1.0", more=more)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    folder = made("sky-t-one")
    look = "import asyncio, enum, sky_t_one; print(enum.Enum, asyncio.run, sky_t_one.VERSION)"
    ran = subprocess.run(
        [sys.executable, "-c", look],
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.endswith(" 1.0\n")
    assert (Path(folder) / "sky_t_two/enum.py").exists()


def test_another_commit_of_a_repository_is_another_package(cache, tmp_path):
    """Its version is the same."""
    source = tmp_path / "source"
    source.mkdir()
    whole = wheel(tmp_path / "wheels", "sky-t-one", "1.0")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "copies"\nbackend-path = ["."]\n'
        '[project]\nname = "sky-t-one"\nversion = "1.0"\n'
    )
    (source / "copies.py").write_text(
        "import shutil\n"
        "def build_wheel(folder, settings=None, metadata=None):\n"
        f"    return shutil.copy({str(whole)!r}, folder).rpartition('/')[2]\n"
    )

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(source), *who, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    listed = []
    for number in range(2):
        (source / "note").write_text(str(number))
        git("add", ".")
        git("commit", "-q", "-m", "more")
        commit = git("rev-parse", "HEAD")
        listed.append(packages_in(made(f"sky-t-one @ git+file://{source}@{commit}")))
        assert commit in listed[-1][0]
    (told,) = version_locks.news(*listed)
    commits = [lines[0].rpartition("@")[2][:8] for lines in listed]
    assert told == f"sky-t-one {commits[0]} → {commits[1]}"


@pytest.mark.parametrize("subdirectory", ["", "python/part"])
@pytest.mark.parametrize(
    ("said", "listed"),
    [
        (
            {"url": "https://h/r", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}},
            "sky-t-one @ git+https://h/r@1a2b",
        ),
        ({"url": "https://h/r.zip", "archive_info": {}}, "sky-t-one @ https://h/r.zip"),
    ],
)
def test_the_part_of_a_source_that_a_package_is_in_is_listed(tmp_path, said, listed, subdirectory):
    info = tmp_path / "sky_t_one-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sky-t-one\nVersion: 1.0\n")
    part = {"subdirectory": subdirectory} if subdirectory else {}
    (info / "direct_url.json").write_text(json.dumps({**said, **part}))
    ran = subprocess.run(
        [sys.executable, "-"],
        input=version_locks._LIST,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert listed + (f"#subdirectory={subdirectory}" if part else "") in ran.stdout.decode().split(
        "\n"
    )
