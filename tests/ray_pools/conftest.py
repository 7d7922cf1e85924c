"""A cluster of a module, and pools on it; after each test it has no group and no actor of a pool."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from ray_pools.raylets import lacks, raylets
from waiting import until

from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import RayAccess
from skyward_nb.words.spec import PoolSpec


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if lacks():
        pytest.skip(lacks())
    # Its sockets need a short path.
    folder = Path(tempfile.mkdtemp(prefix="raylets-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SKYWARD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        try:
            with raylets(folder / "r") as made:
                patched.setenv("SKYWARD_RAY_PYTHON", str(made.python))
                for name, value in made.environ.items():
                    patched.setenv(name, value)
                yield made
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def on_ray(cluster, no_leaks):
    """`on_ray(nodes=2)` is a pool that is not started yet."""
    made = []

    def make_one(*, access=None, **options):
        spec = PoolSpec(**{
            "name": "ray", "provider": "ray", "nodes": 2, "grace": 20.0,
            "image": Image(interpreter=sys.executable),
            "ray": RayAccess(**{"address": cluster.address, **(access or {})}), **options,
        })  # fmt: skip
        made.append(Pool(spec, PROVIDERS["ray"](), lambda _: None))
        return made[-1]

    yield make_one
    for pool in made:
        pool.close()
    until(lambda: not cluster.groups())
