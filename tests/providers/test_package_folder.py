"""The folder of packages that this Python lacks: from an address, of whom, and when two make it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from providers.wheels import wheel

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
