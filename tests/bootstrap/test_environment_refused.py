"""Environments that cannot be made: what is told, and that nothing half made is left."""

import getpass
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from bootstrap.homes import MINOR, envs, facts_of, folders, make_ready, refused, shell_at, there

from skyward_nb.bootstrap.machine_facts import Tool
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image


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


@pytest.mark.extensive
@pytest.mark.usefixtures("few_needs")
def test_no_egress_but_all_that_is_needed_is_in_uvs_cache(online, tmp_path):
    cut = shell_at(tmp_path / "other", **online, HTTPS_PROXY="http://127.0.0.1:9")
    image = Image(env={"UV_HTTP_RETRIES": "0"})
    made, told = make_ready(cut, image, facts_of(cut))
    assert there(made, "import msgspec; print('well')") == "well"
    assert "cannot be reached: trying without it" in told.text()


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
    assert "it runs Darwin; nodes need Linux" in refused(
        shell, Image(), replace(facts, system="Darwin")
    )
    text = refused(shell, Image(), replace(facts, lacks=("cache",)))
    assert f"{getpass.getuser()} cannot make or write {facts.cache}" in text
    assert "cache=" in text
    assert "it lacks tar, gzip" in refused(shell, Image(), replace(facts, lacks=("tar", "gzip")))


def test_another_python_is_refused_before_anything_is_asked(shell):
    facts = facts_of(shell)
    with pytest.raises(OptionError, match=r"python=3\.1"):
        make_ready(shell, Image(python="3.1"), facts)
    assert shell.rounds == 1


def test_a_disk_that_has_clearly_too_little_room_is_told_before_anything_is_sent(shell, tmp_path):
    facts = replace(facts_of(shell), disk_free=20_000_000)
    error = refused(shell, Image(), facts)
    assert "20 MB is free for" in error and "cache=" in error
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
    assert "cache=" in text
    assert [*cache.rglob("*/bin/python")] == []
    assert list(cache.rglob(".new-*")) == []


@pytest.mark.extensive
def test_a_disk_too_small_for_uv(host, small, tmp_path):
    cache = tmp_path / "home/.cache/skyward_nb"
    small(cache, "8m")
    text = refused(host, Image(), facts_of(host, uvs=(), disk_free=10**9))
    assert "uv, which makes its environment, could not be copied there: the disk is full" in text
    assert [each for each in cache.rglob("*") if each.is_file() and each.stat().st_size] == []
