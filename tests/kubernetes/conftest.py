"""A cluster of a module, and pools on it; after each test its API knows no Job and no pod."""

import sys
from types import MappingProxyType

import pytest
from kubernetes.town import IMAGE, SLOW_END, asked_by_this_process, lacks, overrides, town
from msgspec.structs import replace
from waiting import until

from skyward_nb.options.arguments import spec_for
from skyward_nb.options.provider_arguments import Kubernetes
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image


@pytest.fixture(scope="session")
def cluster():
    if lacks():
        pytest.skip(lacks())
    with town() as made, asked_by_this_process(made):
        yield made


@pytest.fixture
def kubernetes(cluster, no_leaks):
    """`kubernetes(nodes=2)` is a pool that is not started yet."""
    made = []

    def make_one(
        *, pods=MappingProxyType({}), source=MappingProxyType({}), framework=(), **options
    ):
        given = Kubernetes(**{"image": IMAGE, "pod_overrides": overrides(dict(pods)), **source})
        spec = spec_for("kubernetes", **{
            "provider": given, "nodes": 2, "grace": 20.0, "image": Image(interpreter=sys.executable), **options,
        })  # fmt: skip
        spec = replace(spec, framework=framework)
        made.append(Pool(spec, PROVIDERS["kubernetes"](), lambda _: None))
        return made[-1]

    yield make_one
    for pool in made:
        pool.close()
    until(cluster.is_empty, SLOW_END, cluster.pods)
