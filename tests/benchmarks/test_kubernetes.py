"""A pool on Kubernetes beside what `kubectl exec` takes for the same, on one cluster of this machine: `make bench`."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import pytest
from contenders import OURS
from kubernetes.town import IMAGE, Town, asked_by_this_process, lacks, overrides, town
from pools import request, values

from skyward_nb.options.arguments import spec_for
from skyward_nb.options.provider_arguments import Kubernetes
from skyward_nb.pickling.payload import unpack
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.image import Image

SIZE = 256 << 20
ROUNDS = 3
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


def seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def test_kubernetes(pool, figure):
    def beside(what: str, ours: list[float], theirs: list[float], who: str) -> None:
        own, other = median(ours), median(theirs)
        text = f"{OURS} {own:.2f} s, {who} {other:.2f} s: {own / other:.2f} ×"
        figure(what, text, "1.5 × kubectl exec", own <= 1.5 * other)

    pods = [machine.name for machine in pool.context.generations.machines]

    def cell() -> None:
        pool.run(request(pool, "x = 1"), lambda _: None)

    def executed(*words: str, data: bytes = b"") -> None:
        for pod in pods:
            subprocess.run(["kubectl", "exec", "-i", pod, "--", *words], input=data, check=True)

    pool.look(lambda _: None)
    for _ in range(20):
        cell()
    warm = median(seconds(cell) for _ in range(100))
    own = median(seconds(lambda: executed("true")) for _ in range(ROUNDS))
    figure(
        "Kubernetes: a warm cell, x = 1 on 2 pods",
        f"{OURS} {1000 * warm:.1f} ms, kubectl exec true {1000 * own:.0f} ms",
        "kubectl exec true",
        warm < own,
    )
    sent, copied = [], []
    for _ in range(ROUNDS):
        large = os.urandom(SIZE)
        sent.append(seconds(lambda large=large: values(pool, "len(big)", {"big": large})))
        copied.append(
            seconds(lambda large=large: executed("sh", "-c", "cat >/dev/null", data=large))
        )
    beside("Kubernetes: 256 MB to 2 pods", sent, copied, "kubectl exec one after the other")

    def give_back() -> None:
        pool.look(lambda _: None)
        body = f"import os\nos.urandom({SIZE}) if os.environ['RANK'] == '1' else None"
        whole = dataclasses.replace(request(pool, body), limit=1 << 30)
        outcome = pool.run(whole, lambda _: None)
        assert len(unpack(outcome.done[1].value, pool.store)) == SIZE

    def read_back() -> None:
        words = ["kubectl", "exec", pods[1], "--", "head", "-c", str(SIZE), "/dev/urandom"]
        ran = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        assert len(ran.stdout) == SIZE

    got, read = [], []
    for _ in range(ROUNDS):
        got.append(seconds(give_back))
        read.append(seconds(read_back))
    beside("Kubernetes: 256 MB from a pod", got, read, "kubectl exec")
