"""The folder of packages that this Python lacks: from an address, of whom, and when two make it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from providers.wheels import wheel

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


def test_a_folder_that_others_can_write_is_not_used(cache):
    (cache / "beside").mkdir(parents=True)
    (cache / "beside").chmod(0o777)
    with pytest.raises(OptionError, match="SKYWARD_CACHE_DIR"):
        made("sky-t-one")
