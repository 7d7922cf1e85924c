"""A pool on Kubernetes beside what `kubectl exec` takes for the same, on one cluster of this machine: `make bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from engine_figures import of_engine
from kubernetes.town import IMAGE, Town, asked_by_this_process, lacks, overrides, town

from skyward_nb.options.arguments import spec_for
from skyward_nb.options.provider_arguments import Kubernetes
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image

pytestmark = [pytest.mark.skipif(bool(lacks()), reason=lacks()), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Town]:
    with town() as made, asked_by_this_process(made):
        yield made


@pytest.fixture
def pool(cluster: Town) -> Iterator[Pool]:
    source = Kubernetes(image=IMAGE, pod_overrides=overrides())
    spec = spec_for(
        "bench", provider=source, nodes=2, image=Image(interpreter=sys.executable), grace=20.0
    )
    made = Pool(spec, PROVIDERS["kubernetes"](), lambda _: None)
    made.start(lambda _: None)
    try:
        yield made
    finally:
        made.close()


def test_kubernetes(pool, figure):
    pods = [machine.name for machine in pool.context.generations.machines]
    prefixes = [["kubectl", "exec", "-i", pod, "--"] for pod in pods]
    of_engine("Kubernetes", "kubectl exec", prefixes, pool, figure)
