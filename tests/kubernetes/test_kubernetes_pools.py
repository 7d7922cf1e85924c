"""Pools on a real cluster of this machine: they come up, wait, run, are found again, and end."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from engine_pools import does_as_one_of_this_machine, found_after_its_notebook_was_killed
from kubernetes.town import IMAGE, SLOW_END, overrides, phases, pods_of
from msgspec.structs import replace
from pools import found, request, values
from waiting import until

from skyward_nb.pool import registry
from skyward_nb.protocol.events import Output, Phase
from skyward_nb.providers.kubernetes import pool_job
from skyward_nb.providers.kubernetes.manifest import ServerVersion, job_name, manifest
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.loop_thread import LOOP
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.reports.cleanup import clean_up
from skyward_nb.words.errors import HostError, PoolError, StartError

pytestmark = pytest.mark.extensive
"""A cluster takes 20 s and more to start."""

_DOCS = Path(__file__).parents[2] / "docs" / "howto" / "kubernetes.md"


def printed(events):
    return "".join(each.text for each in events if isinstance(each, Output))


def once_begun(act):
    """Watches a run, and acts once rank 0 has printed `begun`."""
    done = []

    def watch(event):
        if isinstance(event, Output) and "begun" in event.text and event.rank == 0 and not done:
            done.append(event)
            act()

    return watch


_SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(600)"

# ── what runs there ─────────────────────────────────────────────────────────────────────


def test_an_exec_that_is_cut_is_made_anew_in_mid_run(kubernetes, cluster):
    pool, events = kubernetes(), []
    pool.start(lambda _: None)

    def cut():
        for machine in pool.context.generations.machines:
            for process in machine._line._streams:
                os.killpg(process.pid, signal.SIGKILL)

    watch = once_begun(cut)
    pool.look(lambda _: None)
    body = "import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('over')\n7"
    outcome = pool.run(request(pool, body), lambda event: (events.append(event), watch(event)))
    assert len(outcome.done) == 2
    assert printed([each for each in events if getattr(each, "rank", 1) == 0]).count("over") == 1


def test_a_job_of_a_queue_has_kueues_label_and_its_pool_may_have_any_name(kubernetes, cluster):
    """Without Kueue's own controller the label suspends nothing."""
    pool = kubernetes(name="My_Pool.v2", source={"queue": "team"})
    pool.start(lambda _: None)
    labels = json.loads(cluster.say("get", "jobs", "-o", "json"))["items"][0]["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "team"
    assert values(pool, "1") == [1, 1]


def test_a_pool_whose_notebook_was_killed_is_found_again_until_a_pod_is_deleted(
    kubernetes, cluster
):
    again = found_after_its_notebook_was_killed(kubernetes().spec)
    assert values(again, "1") == [1, 1]
    pod = pods_of(again)[1]
    again.look(lambda _: None)
    delete = once_begun(lambda: cluster.say("delete", "pod", pod, "--wait=false"))
    with pytest.raises(PoolError, match=f"pod {pod}: it was deleted"):
        again.run(request(again, _SLEEPS), delete)
    assert again.closed
    until(cluster.is_empty)
    assert not registry.entries()
    assert not PodRecord.every()


# ── what does not come up ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ({"context": "nope"}, {}, r"gives no pods: .*nope.*get-contexts"),
        ({"context": "away"}, {}, r"cannot be asked for pods: .*refused.*kubectl get pods"),
        ({"context": "plain"}, {}, r'cannot create resource "jobs".*Ask for a Role'),
        ({"namespace": "nope"}, {}, r"namespace.*not found.*namespace=NAME"),
        ({"image": "local/none:1"}, {}, r"its image is not on the node.*ErrImageNeverPull"),
        ({"service_account": "nope"}, {}, r"no such service account: service_account="),
    ],
)  # fmt: skip
def test_what_cannot_start_is_said_at_once_and_nothing_is_left(
    kubernetes, cluster, source, options, words
):
    pool = kubernetes(source=source, **options)
    with pytest.raises(StartError, match=words):
        pool.start(lambda _: None)
    assert cluster.is_empty()
    assert not PodRecord.every()


def test_without_kubectl_it_says_where_to_get_it(kubernetes, monkeypatch, tmp_path):
    pool = kubernetes()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartError, match=r"there is no kubectl here: https://kubernetes\.io"):
        pool.start(lambda _: None)


def test_a_part_that_is_not_there_ends_the_wait(kubernetes, cluster):
    lacking = {
        "name": "main",
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "x"}}}],
    }
    pool = kubernetes()
    text = msgspec.json.decode(pool.spec.kubernetes.pod_overrides)
    text["spec"]["containers"][0] |= lacking
    pool.context.spec = replace(
        pool.spec,
        kubernetes=replace(pool.spec.kubernetes, pod_overrides=msgspec.json.encode(text).decode()),
    )
    with pytest.raises(StartError, match='CreateContainerConfigError: secret "nope" not found'):
        pool.start(lambda _: None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accelerator": "H100:8"}, r"would never run: accelerator=H100:8 .* no node of this cluster has GPUs"),
        ({"nodes": 3}, r"would never run: nodes=3, and the cluster has 2"),
    ],
)  # fmt: skip
def test_what_no_node_has_is_said_when_nothing_adds_one(
    kubernetes, cluster, monkeypatch, options, words
):
    monkeypatch.setattr(pool_job, "NO_ROOM", 2.0)
    pool, told = kubernetes(**options), []
    with pytest.raises(StartError, match=words):
        pool.start(told.append)
    assert any("no node has" in text or "a node of its own" in text for text in phases(told))
    assert cluster.is_empty()


def test_a_quota_that_gives_no_more_is_named(kubernetes, cluster):
    cluster.say("create", "quota", "small", "--hard=pods=1")
    try:
        until(lambda: cluster.say("get", "quota", "small", "-o", "jsonpath={.status.hard.pods}"))
        with pytest.raises(
            StartError, match="the quota small of the namespace gives no more: pods=1"
        ):
            kubernetes().start(lambda _: None)
    finally:
        cluster.say("delete", "quota", "small")
    assert cluster.is_empty()


def test_a_pool_that_waits_says_why_and_an_interrupt_deletes_its_job(kubernetes, cluster):
    pool, told = kubernetes(cpus=1000), []
    work = LOOP.start(pool.context.provider.acquire(pool.spec, pool.pool_id, told.append))
    until(lambda: any("no node has enough free CPUs" in text for text in phases(told)))
    (record,) = PodRecord.every()
    assert (record.pool_id, record.pods, record.namespace) == (pool.pool_id, (), "default")
    work.give_up()
    assert cluster.is_empty()
    assert not PodRecord.every()


def test_a_job_whose_notebook_was_killed_while_it_waited_is_deleted_by_the_next_and_by_a_sweep(
    kubernetes, cluster
):
    maker = replace(MakerProcess.this(), since=1.0)
    whole = replace(kubernetes().spec, nodes=1)
    for clean in (lambda tell: kubernetes(nodes=1).start(tell), lambda tell: tell(clean_up())):
        # The answer to its creation never came.
        PodRecord(pool_id="lost-123456", maker=maker, context="admin").write()
        cluster.say(
            "create", "-f", "-", data=manifest(whole, "lost-123456", ServerVersion((1, 20)))
        )
        assert f"job.batch/{job_name('lost-123456')}" in cluster.things()
        events = []
        clean(events.append)
        assert any("lost-123456" in str(each) for each in events if not isinstance(each, Phase))
        until(
            lambda: not [each for each in cluster.things() if "lost" in each],
            SLOW_END,
            cluster.pods,
        )
    assert not [each for each in PodRecord.every() if each.pool_id == "lost-123456"]


# ── how it ends ─────────────────────────────────────────────────────────────────────────


_SAVES = f"""
import skyward_nb as sky
sky.on_preempt(lambda: print("saved", flush=True))
{_SLEEPS}
"""


def test_a_pod_that_is_evicted_is_told_before(kubernetes, cluster):
    """An eviction as `kubectl drain` makes it."""
    pool, events = kubernetes(nodes=1), []
    pool.start(lambda _: None)
    (pod,) = pods_of(pool)
    eviction = json.dumps(
        {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "default"},
        }
    )
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    evict = once_begun(lambda: cluster.say("create", "--raw", path, "-f", "-", data=eviction))
    pool.look(lambda _: None)
    with pytest.raises(PoolError, match=f"pod {pod}: it was"):
        pool.run(request(pool, _SAVES), lambda event: (events.append(event), evict(event)))
    assert "Kubernetes ends this pod at" in printed(events)
    assert "saved" in printed(events)


def test_a_deadline_of_kubernetes_own_is_said(kubernetes, cluster):
    pool = kubernetes(nodes=1, pods={"activeDeadlineSeconds": 600})
    pool.start(lambda _: None)
    (pod,) = pods_of(pool)
    shorter = '{"spec": {"activeDeadlineSeconds": 1}}'
    over = once_begun(lambda: cluster.say("patch", "pod", pod, "-p", shorter))
    pool.look(lambda _: None)
    with pytest.raises(PoolError, match="its deadline was reached: ask for more with ttl="):
        pool.run(request(pool, _SLEEPS), over)


def test_a_rank_that_takes_more_memory_than_its_pod_has_is_named_with_evidence(kubernetes, cluster):
    pool = kubernetes(nodes=1, memory=0.4)
    pool.start(lambda _: None)
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, "x = bytearray(b'x') * (800 << 20)"), lambda _: None)
    told = str(outcome.lost or outcome.failed)
    assert "memory ran out (oom_kill of its control group rose by" in told


def test_a_node_that_dies_is_told_before_kubernetes_knows(kubernetes, cluster, no_leaks):
    pool, events = kubernetes(), []
    pool.start(lambda _: None)
    lost = cluster.say("get", "pod", pods_of(pool)[1], "-o", "jsonpath={.spec.nodeName}")
    watch = once_begun(lambda: cluster.cut(lost))

    def look(event):
        events.append(event)
        watch(event)
        if isinstance(event, Phase) and "reach it again" in event.text:
            assert (
                cluster.say("get", "pod", pods_of(pool)[1], "-o", "jsonpath={.status.phase}")
                == "Running"
            )
            pool.interrupt()

    try:
        pool.look(lambda _: None)
        pool.run(request(pool, _SLEEPS), look)
    except PoolError:
        """The pool may end with it."""
    finally:
        no_leaks.add(f"child {cluster.mend(lost)}")
    assert any("reach it again" in text for text in phases(events))


def test_a_pool_that_nobody_comes_back_to_ends_its_job(kubernetes, cluster):
    pool = kubernetes(idle=15.0)
    pool.start(lambda _: None)
    pool.leave()
    ended = "{.items[*].status.phase}"
    until(
        lambda: cluster.say("get", "pods", "-o", f"jsonpath={ended}") in ("Succeeded Succeeded", "")
    )
    with pytest.raises(PoolError, match=r"gone|ended"):
        found(pool).attach(lambda _: None)
    until(cluster.is_empty, SLOW_END, cluster.pods)  # by ttlSecondsAfterFinished: nobody deletes it


# ── rights ──────────────────────────────────────────────────────────────────────────────


def rules():
    """The Role of the page on Kubernetes."""
    text = _DOCS.read_text()
    (block,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", text, re.DOTALL)
    return block


@pytest.fixture
def role(cluster):
    """Gives the user of the context `role`, and the pods' own account, these rules, and takes them back."""

    def give(text):
        cluster.say("delete", "role/skyward-nb", "--ignore-not-found")
        assert cluster.say("apply", "-f", "-", data=text)

    words = ("--role=skyward-nb", "--user=role", "--serviceaccount=default:default")
    cluster.say("create", "rolebinding", "role", *words)
    yield give
    cluster.say("delete", "role/skyward-nb", "rolebinding/role", "--ignore-not-found")


def test_the_role_of_the_page_suffices(kubernetes, cluster, role):
    role(rules())
    pool = kubernetes(source={"context": "role"})
    pool.start(lambda _: None)
    assert values(pool, "1") == [1, 1]
    pool.close()
    assert cluster.is_empty()


@pytest.mark.parametrize(
    ("had", "left", "words"),
    [
        ("[create, list, delete]", "[list, delete]", 'cannot create resource "jobs".*Ask for a Role'),
        ("[create, list, delete]", "[create, delete]", 'cannot list resource "jobs".*Ask for the Role'),
        ("[get, list]", "[get]", 'cannot list resource "pods".*Ask for the Role'),
        ("[get, list]", "[list]", 'cannot get resource "pods"'),
        ("[create, get]", "[get]", 'cannot create resource "pods/exec"'),
    ],
)  # fmt: skip
def test_with_less_than_the_role_of_the_page_no_pool_comes_up(
    kubernetes, cluster, role, had, left, words
):
    role(rules().replace(f"verbs: {had}", f"verbs: {left}"))
    pool = kubernetes(source={"context": "role"})
    with (
        pytest.warns(UserWarning)
        if "list" in had and "list" not in left
        else contextlib.nullcontext()
    ):
        with pytest.raises((StartError, HostError), match=words):
            pool.start(lambda _: None)
    for record in PodRecord.every():
        record.remove()
    cluster.say("delete", "jobs", "--all")


_NOTEBOOK = """
import json, sys
import skyward_nb as sky
from skyward_nb.words.image import Image
if __name__ == "__main__":
    overrides = json.loads(sys.argv[1])
    source = sky.Kubernetes(image=sys.argv[2], pod_overrides=overrides)
    @sky.function
    def where():
        return sky.rank()
    with sky.Compute(provider=source, nodes=2, image=Image(interpreter=sys.executable)) as pool:
        print(where() @ pool)
"""


def test_from_within_a_pod_of_the_cluster(kubernetes, cluster, role):
    """By the account of the pod, with the Role of the page; no service addresses are routed on these nodes."""
    role(rules())
    kubernetes()
    whole = overrides()["spec"]
    address = {"KUBERNETES_SERVICE_HOST": "10.99.0.1", "KUBERNETES_SERVICE_PORT": "16443"}
    container = {
        **whole["containers"][0], "image": IMAGE, "command": ["/bin/busybox", "sleep", "600"],
        "env": [{"name": name, "value": value} for name, value in {"HOME": "/tmp", **address}.items()],
    }  # fmt: skip
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "notebook"},
        "spec": {**whole, "containers": [container], "terminationGracePeriodSeconds": 0},
    }  # fmt: skip
    assert cluster.say("create", "-f", "-", data=json.dumps(pod))
    try:
        phase = ("get", "pod", "notebook", "-o", "jsonpath={.status.phase}")
        until(lambda: cluster.say(*phase) == "Running")
        command = [sys.executable, "-", json.dumps(overrides()), IMAGE]
        ran = subprocess.run(
            ["kubectl", "exec", "-i", "notebook", "--", *command],
            input=_NOTEBOOK, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.stdout.splitlines()[-1:] == ["[0, 1]"], ran.stderr
        assert cluster.things() == ["pod/notebook"]
    finally:
        cluster.say("delete", "pod", "notebook", "--wait=true")


# ── frameworks and values ───────────────────────────────────────────────────────────────

_DDP = """
import torch
import skyward_nb as sky
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.full((8, 4), float(sky.rank() + 1))
losses = []
for _ in range(20):
    loss = model(x).sub(1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
(losses[-1] < losses[0], [round(each, 6) for each in model.module.weight.flatten().tolist()])
"""


def test_ddp_trains_over_two_kubelets(kubernetes, cluster):
    pool = kubernetes(framework=("torch",))
    pool.start(lambda _: None)
    (first, here), (second, there) = values(pool, _DDP)
    assert first
    assert second
    assert here == there


def test_cells_large_values_and_pictures_are_as_on_this_machine(kubernetes, cluster):
    pool = kubernetes()
    pool.start(lambda _: None)
    does_as_one_of_this_machine(pool)
