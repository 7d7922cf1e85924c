"""SkyPilot with recorded answers, whose machine is an sshd of this one; after each test it has no cluster."""

import json
import os
import sys
from pathlib import Path

import pytest
from sshds import lacks, sshd

from skyward_nb.pool.pool import Pool
from skyward_nb.providers.folders import runtime_root
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image
from skyward_nb.words.skypilot_access import SkyPilotAccess
from skyward_nb.words.spec import PoolSpec

_PROGRAM = Path(__file__).with_name("fake_sky.py")


class FakeSky:
    """The program `sky`, what it was asked, and what is to go wrong."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "sky"
        self.path.write_text(
            f'#!/bin/sh\nSKY_FOLDER={folder} exec {sys.executable} -I {_PROGRAM} "$@"\n'
        )
        self.path.chmod(0o755)

    def calls(self):
        """The commands so far, each as a list of words."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def clusters(self):
        """The clusters that there are."""
        path = self.folder / "clusters.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def keep(self, clusters):
        """Have these clusters be there."""
        (self.folder / "clusters.json").write_text(json.dumps(clusters))

    def say(self, name):
        """Have something go wrong from now on: `fails`, `hangs`, `no-cloud`, `down-fails`."""
        (self.folder / name).touch()

    def unsay(self, name):
        """Have it go well again."""
        (self.folder / name).unlink()


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    if lacks():
        pytest.skip(lacks())
    folder = tmp_path_factory.mktemp("machine")
    environ = {
        "SKYWARD_RUNTIME_DIR": str(runtime_root()),
        "SKYWARD_CACHE_DIR": str(folder / "cache"),
    }
    with sshd(folder / "sshd", environ) as started:
        yield started


@pytest.fixture
def fake(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "sky"
    folder.mkdir()
    access = {
        "address": machine.address, "port": machine.port, "user": machine.user, "key": str(machine.client_key),
    }  # fmt: skip
    (folder / "machine.json").write_text(json.dumps(access))
    return FakeSky(folder)


@pytest.fixture
def rented(fake, no_leaks):
    """`rented(nodes=2)` is a pool that is not started yet."""
    made = []

    def make_one(**options):
        spec = PoolSpec(**{
            "name": "rented", "provider": "sky", "nodes": 2, "grace": 20.0,
            "image": Image(interpreter=sys.executable),
            "skypilot": SkyPilotAccess(infra="gcp", executable=str(fake.path)), **options,
        })  # fmt: skip
        made.append(Pool(spec, PROVIDERS["sky"](), lambda _: None))
        return made[-1]

    yield make_one
    for pool in made:
        pool.close()
    assert not fake.clusters()
    assert os.environ["HOME"]
