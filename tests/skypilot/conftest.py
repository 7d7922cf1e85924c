"""SkyPilot with recorded answers, whose machine is an sshd of this one; after each test it has no cluster."""

import os
import sys

import pytest
from leaks import places
from skypilot.program import FakeSky
from sshds import lacks, sshd

from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import SkyPilotAccess
from skyward_nb.words.spec import PoolSpec


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    if lacks():
        pytest.skip(lacks())
    folder = tmp_path_factory.mktemp("machine")
    environ = {**places(), "SKYWARD_CACHE_DIR": str(folder / "cache")}
    with sshd(folder / "sshd", environ) as started:
        yield started


@pytest.fixture
def fake(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return FakeSky(tmp_path / "sky", machine)


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
