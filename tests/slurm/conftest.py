"""A cluster of a module, and pools on it; after each test its queue is empty."""

import os
import sys

import pytest
from leaks import places
from slurm.town import lacks, lacks_accounting, town
from waiting import until

from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import SlurmAccess
from skyward_nb.words.spec import PoolSpec


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    """As the module names it in CLUSTER: lines of slurm.conf, and what `Town` takes."""
    options = getattr(request.module, "CLUSTER", {})
    if lack := lacks_accounting() if "accounts" in options else lacks():
        pytest.skip(lack)
    folder = tmp_path_factory.mktemp("town")
    with pytest.MonkeyPatch.context() as patched, town(folder / "slurm", **options) as made:
        for name, value in made.environ.items():
            patched.setenv(name, value)
        patched.setenv("SKYWARD_CACHE_DIR", str(folder / "cache"))
        yield made


@pytest.fixture
def access(cluster):
    """What `sky.Slurm(...)` says: nodes have the folders of these tests."""
    folders = {**places(), "SKYWARD_CACHE_DIR": os.environ["SKYWARD_CACHE_DIR"]}
    lines = tuple(f"export {name}={place}" for name, place in folders.items())

    def made(**options):
        return SlurmAccess(before=lines, **options)

    return made


@pytest.fixture
def slurm(cluster, access, no_leaks):
    """`slurm(nodes=2)` is a pool that is not started yet."""
    made = []

    def make_one(*, job=None, **options):
        spec = PoolSpec(**{
            "name": "slurm", "provider": "slurm", "nodes": 2, "grace": 20.0,
            "image": Image(interpreter=sys.executable), "slurm": access(**(job or {})), **options,
        })  # fmt: skip
        made.append(Pool(spec, PROVIDERS["slurm"](), lambda _: None))
        return made[-1]

    yield make_one
    for pool in made:
        pool.close()
    until(cluster.is_empty)
