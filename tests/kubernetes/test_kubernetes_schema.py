"""The manifest, against the schema of Kubernetes' API that its reference documents: no field of another name or type.

Clusters of tests are of a version that knows no Indexed Jobs, so what newer ones are asked for is checked here. The rows are
of the reference of 1.30 (batch/v1 Job and what is below it), for those parts that a pool uses; a server of another version
refuses what it does not know, or drops it silently.
"""

import json
import re

import pytest
from options.lines import spec

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.providers.kubernetes.manifest import ServerVersion, manifest

MAP = {str: str}
"""A map of names to texts; quantities are texts, too."""
SCHEMA = {
    "Job": {"apiVersion": str, "kind": str, "metadata": "ObjectMeta", "spec": "JobSpec"},
    "ObjectMeta": {"name": str, "namespace": str, "labels": MAP, "annotations": MAP},
    "JobSpec": {
        "completions": int, "parallelism": int, "completionMode": str, "backoffLimit": int, "activeDeadlineSeconds": int,
        "ttlSecondsAfterFinished": int, "suspend": bool, "template": "PodTemplateSpec",
    },
    "PodTemplateSpec": {"metadata": "ObjectMeta", "spec": "PodSpec"},
    "PodSpec": {
        "restartPolicy": str, "automountServiceAccountToken": bool, "enableServiceLinks": bool, "serviceAccountName": str,
        "terminationGracePeriodSeconds": int, "activeDeadlineSeconds": int, "securityContext": "PodSecurityContext",
        "affinity": "Affinity", "containers": ["Container"], "volumes": ["Volume"], "tolerations": ["Toleration"],
        "nodeSelector": MAP, "dnsPolicy": str,
    },
    "PodSecurityContext": {"seccompProfile": "SeccompProfile", "runAsNonRoot": bool, "runAsUser": int},
    "SeccompProfile": {"type": str},
    "Affinity": {"nodeAffinity": "NodeAffinity", "podAntiAffinity": "PodAntiAffinity"},
    "NodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": "NodeSelector"},
    "NodeSelector": {"nodeSelectorTerms": ["NodeSelectorTerm"]},
    "NodeSelectorTerm": {"matchExpressions": ["NodeSelectorRequirement"]},
    "NodeSelectorRequirement": {"key": str, "operator": str, "values": [str]},
    "PodAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["PodAffinityTerm"]},
    "PodAffinityTerm": {"labelSelector": "LabelSelector", "topologyKey": str},
    "LabelSelector": {"matchLabels": MAP},
    "Toleration": {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int},
    "Container": {
        "name": str, "image": str, "command": [str], "env": ["EnvVar"], "resources": "ResourceRequirements",
        "securityContext": "SecurityContext", "lifecycle": "Lifecycle", "volumeMounts": ["VolumeMount"],
    },
    "EnvVar": {"name": str, "value": str},
    "ResourceRequirements": {"requests": MAP, "limits": MAP},
    "SecurityContext": {"allowPrivilegeEscalation": bool, "capabilities": "Capabilities"},
    "Capabilities": {"drop": [str]},
    "Lifecycle": {"preStop": "LifecycleHandler"},
    "LifecycleHandler": {"exec": "ExecAction"},
    "ExecAction": {"command": [str]},
    "Volume": {"name": str, "emptyDir": "EmptyDirVolumeSource", "persistentVolumeClaim": "Claim"},
    "EmptyDirVolumeSource": {"medium": str, "sizeLimit": str},
    "Claim": {"claimName": str, "readOnly": bool},
    "VolumeMount": {"name": str, "mountPath": str, "readOnly": bool},
}  # fmt: skip
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def faults(value, kind, path=""):
    """What of a value is not as its kind has it."""
    if isinstance(kind, str):
        if not isinstance(value, dict):
            return [f"{path} is no {kind}"]
        fields = SCHEMA[kind]
        unknown = [f"{path}.{key} is no field of {kind}" for key in value if key not in fields]
        known = [
            (each, fields[key], f"{path}.{key}") for key, each in value.items() if key in fields
        ]
        return unknown + [fault for each in known for fault in faults(*each)]
    if isinstance(kind, list):
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [fault for number, each in enumerate(value) for fault in faults(each, kind[0], f"{path}[{number}]")]  # fmt: skip
    if isinstance(kind, dict):
        return [f"{path}.{key} is no text" for key, each in value.items() if type(each) is not str]
    return [] if type(value) is kind else [f"{path} is no {kind.__name__}"]


LINES = [
    "",
    "nodes=4 accelerator=H100:8 cpus=16+ memory=64 ttl=2h queue=team service_account=runner",
    "nodes=2 accelerator=A100:1 apt=ffmpeg image=me/torch:2 cpus=0.5",
    "nodes=1000",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("text", ["v1.22.0", "v1.30.5-gke.1014001", "v1.34.1-eks-3cfe0ce"])
def test_the_job_is_of_the_documented_schema(line, text):
    asked = spec(f"provider=kubernetes {line}".strip())
    numbers = (1, int(text.split(".")[1]))
    job = json.loads(manifest(asked, "My_Pool.v2-abcdef", ServerVersion(numbers, text)))
    assert faults(job, "Job") == []
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    of_job = job["spec"]
    # An Indexed Job: so many indices, each with one pod, whose host name and name begin with the Job's and the index.
    assert (of_job["completionMode"], of_job["completions"]) == ("Indexed", asked.nodes)
    assert of_job["parallelism"] == of_job["completions"]
    assert of_job["template"]["spec"]["restartPolicy"] == "Never"
    assert NAME.fullmatch(job["metadata"]["name"])
    assert len(f"{job['metadata']['name']}-{asked.nodes - 1}") <= 63
    for labels in (job["metadata"]["labels"], of_job["template"]["metadata"]["labels"]):
        for value in labels.values():
            assert LABEL_VALUE.fullmatch(value)
            assert len(value) <= 63


def test_a_plain_job_is_of_it_too_without_the_mode():
    job = json.loads(manifest(spec("provider=kubernetes nodes=2"), "p-abcdef", ServerVersion((1, 20))))  # fmt: skip
    assert faults(job, "Job") == []
    assert "completionMode" not in job["spec"]


def test_overrides_of_the_page_are_of_it():
    volume = {"name": "cache", "persistentVolumeClaim": {"claimName": "skyward"}}
    mounted = {
        "name": "main",
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        "env": [{"name": "SKYWARD_CACHE_DIR", "value": "/cache/skyward"}],
    }
    source = sky.Kubernetes(
        pod_overrides={"spec": {"volumes": [volume], "containers": [mounted], "securityContext": {"runAsUser": 1000}}}
    )  # fmt: skip
    job = json.loads(manifest(spec_for("x", provider=source), "p-abcdef", ServerVersion()))
    assert faults(job, "Job") == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("spec", "completionmode"), "Indexed", ".spec.completionmode is no field of JobSpec"),
        (("spec", "completions"), "4", ".spec.completions is no int"),
        (("spec", "template", "spec", "volumes"), {}, ".spec.template.spec.volumes is no list"),
        (("metadata", "labels"), {"a": 1}, ".metadata.labels.a is no text"),
    ],
)
def test_what_is_not_of_the_schema_is_seen(path, value, says):
    job = json.loads(manifest(spec("provider=kubernetes"), "p-abcdef", ServerVersion()))
    place = job
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert faults(job, "Job") == [says]
