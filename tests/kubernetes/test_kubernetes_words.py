"""What Kubernetes is asked for, and what its answers mean: pure."""

import json

import pytest
from msgspec.structs import replace
from options.lines import spec

import skyward_nb as sky
from skyward_nb.node.spot_notices import signalled
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.defaults import Default, with_defaults
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import check_fits
from skyward_nb.protocol.commands import POD_ENDS, TIME_LIMIT
from skyward_nb.providers.kubernetes.cluster import advised, is_silent, kubectl, unreached
from skyward_nb.providers.kubernetes.gpu_labels import GPU_LABELS, terms
from skyward_nb.providers.kubernetes.kubernetes_provider import KubernetesProvider
from skyward_nb.providers.kubernetes.manifest import (
    ServerVersion,
    job_name,
    laid_over,
    manifest,
    notice_of,
)
from skyward_nb.providers.kubernetes.pod_states import (
    JobView,
    NodeRoom,
    PodEvent,
    PodState,
    read_events,
    read_room,
    read_view,
)
from skyward_nb.providers.kubernetes.pod_words import (
    is_coming,
    refused_words,
    spell_end,
    spell_unscheduled,
    spell_waiting,
    why_never,
    why_no_room,
)
from skyward_nb.reports.cost_approval import dry_lines
from skyward_nb.words.catalogue import kind_of
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.provider_access import KubernetesAccess


def made(line="provider=kubernetes", server=None):
    return json.loads(manifest(spec(line), "p-abcdef", server or ServerVersion()))


def pod_of(job):
    return job["spec"]["template"]["spec"]


def main_of(job):
    return pod_of(job)["containers"][0]


# ── options ─────────────────────────────────────────────────────────────────────────────


def test_sky_kubernetes_says_the_same_as_the_line():
    line = spec(
        "provider=kubernetes context=arn:aws:eks:eu-1:12:cluster/a namespace=lab image=nvcr.io/nvidia/pytorch:25.01-py3 "
        "queue=team service_account=runner"
    )
    source = sky.Kubernetes(
        context="arn:aws:eks:eu-1:12:cluster/a",
        namespace="lab",
        image="nvcr.io/nvidia/pytorch:25.01-py3",
        queue="team",
        service_account="runner",
    )
    assert spec_for("default", provider=source).kubernetes == line.kubernetes
    assert spec("provider=kubernetes").idle == 1800
    assert spec("provider=kubernetes").kubernetes == KubernetesAccess()


def test_an_image_of_packages_goes_with_one_of_pods():
    whole = spec_for(
        "x", provider=sky.Kubernetes(image="python:3.12"), image=sky.Image(pip=["numpy"])
    )
    assert (whole.kubernetes.image, whole.image.pip) == ("python:3.12", ("numpy",))
    with_packages = spec('provider=kubernetes image=me/torch:2 pip="numpy"')
    assert (with_packages.kubernetes.image, with_packages.image.pip) == ("me/torch:2", ("numpy",))
    check_fits(with_packages, parse("image=me/torch:2", scopes=("pool",)).pool)
    with pytest.raises(PoolError, match="is up with image=me/torch:2, and image=me/torch:3"):
        check_fits(with_packages, parse("image=me/torch:3", scopes=("pool",)).pool)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("context=lab", "context= is about Kubernetes: it goes with provider=kubernetes"),
        ("provider=slurm queue=a", "queue= is about Kubernetes"),
        ("image=python:3.12", "image=python:3.12 is a container image, and elsewhere image= is the name of"),
        ("provider=kubernetes namespace=Team_A", "'Team_A' is not a name that Kubernetes takes"),
        ("provider=kubernetes queue=a/b", "is not a name that Kubernetes takes"),
        ("provider=kubernetes service_account=-x", "is not a name that Kubernetes takes"),
        ("provider=kubernetes context=--kubeconfig=x", "get-contexts"),
        ("provider=kubernetes image='a:b c'", "a container image, such as image=python:3.12-slim"),
        ("provider=kubernetes partition=gpu", "partition= is about Slurm"),
        ("provider=kubernetes region=us-east-1", "region= is about machines that are rented"),
        ("provider=kubernetes hosts=a", "provider=kubernetes knows no hosts="),
    ],
)  # fmt: skip
def test_what_is_refused(line, says):
    with pytest.raises(OptionError) as raised:
        spec(line)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pod_overrides": {"nodeSelector": {}}}, '"spec"'),
        ({"pod_overrides": {"spec": {1j}}}, "what JSON has"),
        ({"gpu_key": "gpu"}, "nvidia.com/mig-1g.10gb"),
        ({"image": "a b"}, "container image"),
        ({"namespace": "A"}, "namespace=A"),
    ],
)
def test_parts_of_sky_kubernetes_that_are_refused(options, says):
    with pytest.raises(OptionError) as raised:
        spec_for("x", provider=sky.Kubernetes(**options))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("line", "overrides", "says"),
    [
        ("accelerator=MI300X", None, "NVIDIA alone"),
        ("accelerator=A100 mig=3g.20gb", None, 'gpu_key="nvidia.com/mig-3g.20gb"'),
        ("", {"spec": {"restartPolicy": "Always"}}, "restartPolicy is Never"),
        ("", {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}, "command of the container"),
    ],
)  # fmt: skip
def test_what_no_pod_can_have_is_said_before_anything_is_created(line, overrides, says):
    source = sky.Kubernetes(pod_overrides=overrides)
    whole = spec_for("x", provider=source).kubernetes
    asked = spec(f"provider=kubernetes {line}")
    with pytest.raises(OptionError) as raised:
        KubernetesProvider().check(replace(asked, kubernetes=whole))
    assert says in str(raised.value)


def test_defaults_about_kubernetes_are_for_its_pools_alone():
    known = [Default("namespace", "lab", "here"), Default("cpus", "4", "here")]
    there = with_defaults(parse("provider=kubernetes", scopes=("pool",)), known).pool
    assert (there.namespace, there.cpus.amount) == ("lab", 4)
    assert with_defaults(parse("nodes=2", scopes=("pool",)), known).pool.stated == ("nodes",)


# ── the manifest ────────────────────────────────────────────────────────────────────────


def test_one_job_whose_pods_may_nothing_and_whose_first_process_is_the_keeper():
    job = made("provider=kubernetes nodes=4 ttl=2h queue=team service_account=runner")
    assert job["metadata"]["name"] == "skyward-p-abcdef"
    assert job["metadata"]["annotations"] == {"skyward-nb/pool-id": "p-abcdef"}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    whole = {key: value for key, value in job["spec"].items() if key != "template"}
    assert whole == {
        "completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimit": 0,
        "ttlSecondsAfterFinished": 60,
    }  # fmt: skip
    pod = pod_of(job)
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    assert pod["activeDeadlineSeconds"] == 7260
    assert pod["serviceAccountName"] == "runner"
    assert "tolerations" not in pod
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"] == {"skyward-nb/pool": "skyward-p-abcdef"}
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    main = main_of(job)
    assert main["command"][0] == "/bin/sh"
    assert main["command"][2].startswith("set -- /tmp/.skyward-keeper 90\ntrap '' USR2\n")
    assert main["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert main["image"].startswith("python:3.")
    assert main["resources"] == {}
    assert "activeDeadlineSeconds" not in pod_of(made())


def test_an_old_server_gets_a_plain_job():
    assert "completionMode" not in made(server=ServerVersion((1, 20), "v1.20.2"))["spec"]
    assert made(server=ServerVersion((1, 22), ""))["spec"]["completionMode"] == "Indexed"


def test_resources_are_limits_unless_more_may_be_had():
    exact = main_of(made("provider=kubernetes accelerator=H100:8 cpus=16 memory=0.5"))["resources"]
    whole = {"cpu": "16", "memory": "512Mi", "nvidia.com/gpu": "8"}
    assert exact == {"requests": whole, "limits": whole}
    more = main_of(made("provider=kubernetes cpus=16+ memory=64+"))["resources"]
    assert more == {"requests": {"cpu": "16", "memory": "65536Mi"}}
    assert main_of(made("provider=kubernetes accelerator=H100:8 simulate"))["resources"] == {}


def test_packages_of_debian_need_rights_of_their_own():
    rights = main_of(made("provider=kubernetes apt=ffmpeg"))["securityContext"]
    assert rights == {"allowPrivilegeEscalation": False}


@pytest.mark.parametrize(
    ("pool_id", "name"),
    [
        ("default-abcdef", "skyward-default-abcdef"),
        ("My_Pool.v2-abcdef", "skyward-my-pool-v2-abcdef"),
        ("___-abcdef", "skyward-abcdef"),
        (f"{'x' * 41}-abcdef", f"skyward-{'x' * 41}-abcdef"),
    ],
)
def test_a_job_has_a_name_that_kubernetes_takes(pool_id, name):
    assert job_name(pool_id) == name
    assert len(f"{name}-1023") <= 63


def test_overrides_are_laid_over_the_pod():
    base = {
        "a": {"b": 1, "c": 2},
        "list": [{"name": "x", "v": 1}, {"name": "y"}],
        "t": [{"key": "k"}],
    }
    over = {
        "a": {"b": None, "d": 3},
        "list": [{"name": "x", "w": 2}, {"name": "z"}],
        "t": [{"key": "l"}],
        "n": {},
    }
    assert laid_over(base, over) == {
        "a": {"c": 2, "d": 3},
        "list": [{"name": "x", "v": 1, "w": 2}, {"name": "y"}, {"name": "z"}],
        "t": [{"key": "k"}, {"key": "l"}],
        "n": {},
    }
    source = sky.Kubernetes(
        pod_overrides={
            "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
            "spec": {
                "terminationGracePeriodSeconds": 70,
                "containers": [
                    {"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
                ],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }
    )
    whole = spec_for("x", provider=source)
    job = json.loads(manifest(whole, "p-abcdef", ServerVersion()))
    assert job["spec"]["template"]["metadata"]["annotations"] == {
        "sidecar.istio.io/inject": "false"
    }
    assert job["spec"]["template"]["metadata"]["labels"]["skyward-nb/pool"] == "skyward-p-abcdef"
    assert [each["mountPath"] for each in main_of(job)["volumeMounts"]] == [
        "/tmp",
        "/dev/shm",
        "/data",
    ]
    assert notice_of(whole.kubernetes) == 60
    assert "-lt 60 ]" in main_of(job)["lifecycle"]["preStop"]["exec"]["command"][2]


def test_a_dry_run_shows_the_manifest():
    shown = dry_lines(spec("provider=kubernetes nodes=2 namespace=lab"))
    assert shown[1] == "    kubectl --namespace=lab create -f -"
    assert json.loads("\n".join(shown[2:]))["spec"]["parallelism"] == 2
    assert "mkfifo" not in "".join(shown)


# ── GPUs ────────────────────────────────────────────────────────────────────────────────


def labels(found):
    return {rule.key: rule.values for term in found[:-1] for rule in term.match_expressions}


def test_nodes_are_chosen_by_the_labels_of_clouds():
    pod = pod_of(made("provider=kubernetes accelerator=H100:8"))
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "sku", "value": "gpu", "effect": "NoSchedule"},
    ]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert {
        "matchExpressions": [
            {"key": "karpenter.k8s.aws/instance-gpu-name", "operator": "In", "values": ["h100"]}
        ]
    } in required["nodeSelectorTerms"]
    on_gke = pod_of(
        made(
            "provider=kubernetes accelerator=H100:8", ServerVersion((1, 30), "v1.30.5-gke.1014001")
        )
    )
    (term,) = on_gke["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {
            "key": "cloud.google.com/gke-accelerator",
            "operator": "In",
            "values": ["nvidia-h100-80gb", "nvidia-h100-mega-80gb"],
        }
    ]
    assert "nodeAffinity" not in pod_of(made())["affinity"]


def test_an_a100_is_of_either_size_unless_one_is_asked_for():
    gke = "cloud.google.com/gke-accelerator"
    assert labels(terms("A100"))[gke] == ("nvidia-tesla-a100", "nvidia-a100-80gb")
    assert labels(terms("A100-80GB"))[gke] == ("nvidia-a100-80gb",)
    assert labels(terms("A100"))["karpenter.k8s.aws/instance-gpu-name"] == ("a100",)
    assert labels(terms("H100-80GB")) == labels(terms("H100"))


def test_a_node_without_labels_fits_and_one_of_another_size_does_not():
    last = terms("H100")[-1].match_expressions
    assert {rule.operator for rule in last} == {"DoesNotExist", "NotIn"}
    machines = last[-1].values
    assert "Standard_NC64as_T4_v3" in machines
    assert "Standard_ND96isr_H100_v5" not in machines
    assert terms("RTX-4090") == ()
    assert terms("A10", on_gke=True) == ()


def test_the_table_names_models_that_there_are():
    for name in GPU_LABELS:
        assert kind_of(name).maker == "NVIDIA"


# ── its answers ─────────────────────────────────────────────────────────────────────────


def item(name="p-0-x", index="0", node="", phase="Pending", conditions=(), state=None, **status):
    statuses = [{"name": "main", "state": state}] if state is not None else []
    return {
        "kind": "Pod",
        "metadata": {
            "name": name, "annotations": {"batch.kubernetes.io/job-completion-index": index}, "creationTimestamp": None,
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": [*conditions], "containerStatuses": statuses, **status},
    }  # fmt: skip


def view_of(*items, job=True, **job_parts):
    own = {
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "lab"},
        "spec": {},
        "status": {},
        **job_parts,
    }
    return read_view(json.dumps({"items": [*items, *([own] if job else [])]}).encode())


def test_answers_of_kubectl_are_read():
    unscheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available",
    }
    view = view_of(
        item("b", "1", "k2", "Running", state={"running": {"startedAt": "now"}}),
        item("a", "0", conditions=[unscheduled]),
        item(
            "old",
            "1",
            "k1",
            "Failed",
            state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        ),
    )
    assert [pod.name for pod in view.pods] == ["a", "b", "old"]
    assert view.pods[0].unscheduled == "0/2 nodes are available"
    assert (view.pods[1].is_running, view.pods[1].node) == (True, "k2")
    assert (view.pods[2].ended, view.pods[2].code) == ("OOMKilled", 137)
    assert (view.exists, view.namespace) == (True, "lab")
    failed = {
        "status": {
            "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
        }
    }
    assert view_of(**failed).failed == "BackoffLimitExceeded"
    assert not view_of(job=False).exists


def test_room_and_events_are_read():
    nodes = [
        {"spec": {}, "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "8"}}},
        {"spec": {"unschedulable": True}, "status": {"allocatable": {"nvidia.com/gpu": "16"}}},
        {"spec": {}, "status": {"allocatable": {"cpu": "4"}}},
    ]
    assert read_room(json.dumps({"items": nodes}).encode(), "nvidia.com/gpu") == NodeRoom(2, 1, 8)
    events = [
        {"involvedObject": {"name": "p"}, "reason": "B", "message": None, "lastTimestamp": "2"},
        {"involvedObject": {"name": "p"}, "reason": "A", "message": "x", "lastTimestamp": "1"},
    ]
    found = read_events(json.dumps({"items": events}).encode())
    assert [each.reason for each in found] == ["A", "B"]


def waiting(pods, line="provider=kubernetes nodes=2", events=(), **parts):
    return spell_waiting(JobView(exists=True, pods=tuple(pods), **parts), spec(line), events)


def test_where_pods_stand_is_said_in_plain_words():
    lacks = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    up = PodState("a", "Running", "k1", is_running=True)
    assert waiting([up, PodState("b", unscheduled=lacks)]) == (
        "1 of 2 pods run; no node has enough free GPUs (nvidia.com/gpu) (0/2 nodes are available: 2 Insufficient nvidia.com/gpu)"
    )
    grows = [PodEvent("b", "TriggeredScaleUp", "pod triggered scale-up")]
    assert waiting([up, PodState("b", unscheduled=lacks)], events=grows).endswith(
        ": an autoscaler adds a node"
    )
    pulls = [PodEvent("b", "Pulling", "Pulling image")]
    made_now = PodState("b", node="k2", waiting="ContainerCreating")
    assert waiting([up, made_now], events=pulls) == "1 of 2 pods run; their image is pulled"
    assert waiting([up, made_now]) == "1 of 2 pods run; their containers are made"
    assert "Kubernetes makes the others" in waiting([up])
    queued = waiting([], "provider=kubernetes queue=team", is_suspended=True)
    assert queued == "the pool waits in the queue team of Kueue"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("2 Insufficient cpu", "free CPUs"),
        ("1 Insufficient memory, 1 Insufficient nvidia.com/gpu", "free GPUs (nvidia.com/gpu), no node has enough free memory"),
        ("2 node(s) didn't match pod affinity/anti-affinity, 2 node(s) didn't match pod anti-affinity rules", "a node of its own"),
        ("1 node(s) didn't match node selector", "the labels of that accelerator"),
        ("2 node(s) didn't match Pod's node affinity/selector", "the labels of that accelerator"),
        ("1 node(s) had taint {dedicated: a}, that the pod didn't tolerate", "'tolerations'"),
        ("1 node(s) had untolerated taint {dedicated: a}", "taints"),
        ('persistentvolumeclaim "data" not found', "a volume is not there"),
        ("something new", "finds no node"),
    ],
)  # fmt: skip
def test_words_of_the_scheduler_are_explained(message, says):
    assert says in spell_unscheduled(message)


@pytest.mark.parametrize(
    ("pod", "events", "says"),
    [
        (PodState("p", node="k", waiting="ImagePullBackOff", waiting_message="Back-off pulling image"),
         [PodEvent("p", "Failed", 'Failed to pull image "x": not found')], "not found"),
        (PodState("p", node="k", waiting="ErrImageNeverPull"), [], "may not be pulled"),
        (PodState("p", node="k", waiting="InvalidImageName"), [], "see image="),
        (PodState("p", node="k", waiting="CreateContainerConfigError", waiting_message='secret "x" not found'), [],
         'secret "x" not found'),
        (PodState("p", phase="Failed", reason="Evicted", message="disk"), [], "evicted it (disk)"),
        (PodState("p", phase="Failed", ended="Error", code=73), [], "it has ended with status 73"),
    ],
)  # fmt: skip
def test_pods_that_never_run_end_the_wait(pod, events, says):
    assert says in why_never(JobView(exists=True, pods=(pod,)), events, 1)


def test_pods_that_may_run_are_waited_for():
    for pod in (
        PodState("p"),
        PodState("p", unscheduled="0/2 nodes are available"),
        PodState("p", node="k", waiting="ContainerCreating"),
        PodState("p", "Running", "k", is_running=True),
    ):
        assert not why_never(JobView(exists=True, pods=(pod,)), [], 1)
    coming = JobView(exists=True, pods=(PodState("p"),))
    assert is_coming(coming, [PodEvent("p", "Nominated", "")])
    assert not is_coming(coming, [PodEvent("q", "Nominated", "")])


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ('pods "x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2',
         "the quota small of the namespace gives no more: pods=1 was asked for, pods=2 is used, of pods=2"),
        ("failed quota: q: must specify limits.cpu", "add cpus= and memory="),
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', "'runAsNonRoot': True"),
        ('error looking up service account lab/x: serviceaccount "x" not found', "service_account="),
    ],
)  # fmt: skip
def test_why_kubernetes_makes_no_pod_is_explained(said, says):
    assert says in refused_words(said)
    events = [PodEvent("j", "FailedCreate", f"Error creating: {said}")]
    assert says in why_never(JobView(exists=True), events, 1)
    assert not why_never(JobView(exists=True, pods=(PodState("p"),)), events, 1)
    assert not refused_words("something new, which may pass")


@pytest.mark.parametrize(
    ("line", "room", "says"),
    [
        ("accelerator=H100:8", NodeRoom(2, 0, 0), "no node of this cluster has GPUs (nvidia.com/gpu)"),
        ("accelerator=H100:8", NodeRoom(2, 2, 4), "no node has more than 4"),
        ("accelerator=H100 nodes=3", NodeRoom(9, 2, 4), "nodes=3, and the cluster has 2 with GPUs"),
        ("nodes=3", NodeRoom(2, 0, 0), "nodes=3, and the cluster has 2, of which each takes one pod"),
        ("nodes=2", NodeRoom(2, 0, 0), ""),
        ("accelerator=H100:8", None, ""),
    ],
)  # fmt: skip
def test_what_no_node_has_is_named(line, room, says):
    found = why_no_room(room, spec(f"provider=kubernetes {line}"))
    assert says in found
    assert bool(found) == bool(says)


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        (PodState("p", "Running", is_running=True), ""),
        (PodState("p"), ""),
        (PodState("p", "Failed", ended="OOMKilled", code=137), "pod p: it used more memory than it had (OOMKilled): ask for more with memory="),
        (PodState("p", "Failed", reason="DeadlineExceeded"), "ask for more with ttl="),
        (PodState("p", "Running", is_deleted=True, is_running=True, disrupted="EvictionByEvictionAPI"), "its node is drained"),
        (PodState("p", "Running", is_deleted=True, is_running=True), "it was deleted"),
        (PodState("p", "Failed", reason="NodeShutdown", message="was shut down."), "its node was shut down (was shut down)"),
        (PodState("p", "Succeeded"), "it has ended"),
        (PodState("p", "Failed", is_deleted=True, ended="Error", code=143), "it was deleted"),
        (PodState("p", "Failed", ended="Error", code=143), "it was told to end from outside (status 143)"),
    ],
)  # fmt: skip
def test_how_a_pod_ended_is_said(pod, says):
    found = spell_end(pod)
    assert says in found
    assert bool(found) == bool(says)


def test_a_pod_that_is_gone_is_explained_by_its_events():
    assert spell_end(None, [], "p") == "pod p: it was deleted"
    for reason, says in (
        ("Preempted", "higher priority"),
        ("Killing", "it was deleted"),
        ("TaintManagerEviction", "does not answer"),
    ):
        assert says in spell_end(None, [PodEvent("p", reason, "")], "p")


def test_words_of_kubectl_get_advice():
    assert "get-contexts" in advised('context "nope" does not exist')
    assert "Role" in advised(
        'jobs.batch is forbidden: User "x" cannot create resource "jobs" in API group "batch"'
    )
    assert "namespace=NAME" in advised('namespaces "nope" not found')
    assert "Log in anew" in advised("You must be logged in to the server (Unauthorized)")
    assert is_silent("Unable to connect to the server: dial tcp: i/o timeout")
    assert is_silent(
        "The connection to the server 1.2.3.4 was refused - did you specify the right host or port?"
    )
    for cut in (
        'Post "https://c:6443/apis/batch/v1/namespaces/d/jobs": EOF',
        'Post "https://c:6443/apis": read tcp 10.0.0.1:5->10.0.0.2:6443: read: connection reset by peer',
        "Timeout: request did not complete within allowed duration",
        "the request timed out, but may still be processing the request",
    ):
        assert is_silent(f'error when creating "STDIN": {cut}'), cut
    assert not is_silent('jobs.batch "x" not found')
    assert "KUBECONFIG" in unreached("The connection to the server localhost:8080 was refused")
    assert kubectl("c", "", ["get"]) == ["kubectl", "--context=c", "get"]


def test_the_notice_of_a_pod_is_not_that_of_a_job(monkeypatch):
    monkeypatch.setenv("SKYWARD_NOTICES", "signal:20:pod")
    assert signalled().action == POD_ENDS
    monkeypatch.setenv("SKYWARD_NOTICES", "signal:120")
    assert signalled().action == TIME_LIMIT
