"""A cluster, by the commands of `kubectl` here: create a Job, look, delete; and which words of it mean what."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skyward_nb.bootstrap.remote_shell import ScriptResult, Shell, ShellGone
from skyward_nb.providers.far.take_down import EngineFault
from skyward_nb.providers.kubernetes.manifest import LABEL, ServerVersion, job_name
from skyward_nb.providers.kubernetes.pod_states import (
    JobView,
    NodeRoom,
    PodEvent,
    read_events,
    read_room,
    read_view,
)
from skyward_nb.words.decoding import from_json

_LIMIT = 40.0
_REQUEST = "--request-timeout=30s"
"""Not within a pod: with this flag, kubectl asks localhost:8080 there (kubernetes#93474)."""
_NO_PROGRAM = 127


class ClusterSilent(EngineFault):
    """The cluster did not answer, which passes; the text has kubectl's words."""


class ClusterRefused(EngineFault):
    """The cluster, or kubectl here, has refused a command; the text has its words, and what to type next."""


class _Version(msgspec.Struct, rename="camel"):
    major: str = "1"
    minor: str = "30"
    git_version: str = ""


class _Versions(msgspec.Struct, rename="camel"):
    server_version: _Version = msgspec.field(default_factory=_Version)


class _Named(msgspec.Struct):
    namespace: str


class _Created(msgspec.Struct):
    metadata: _Named


def kubeconfig() -> str:
    """The files by which kubectl knows clusters here: absolute, as this process may go to another folder."""
    files = os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return os.pathsep.join(str(Path(each).absolute()) for each in files if each)


def kubectl(context: str, namespace: str, words: Sequence[str]) -> list[str]:
    """The command of kubectl with these words; "" is its own default."""
    flags = (("context", context), ("namespace", namespace))
    return ["kubectl", *(f"--{name}={value}" for name, value in flags if value), *words]


class KubernetesCluster:
    """The cluster of a context and a namespace; `shell` is that of this machine."""

    def __init__(self, shell: Shell, context: str = "", namespace: str = "") -> None:
        self._shell = shell
        self.context: str = context
        self.namespace: str = namespace

    async def current_context(self) -> str:
        """The name of kubectl's current context; "" within a pod, or where there is none."""
        ran = await self._run(["config", "current-context"])
        return "" if ran.code else ran.out.decode().strip()

    async def address(self) -> str:
        """The address of the server by kubectl's files; "" within a pod, or where there is none."""
        way = "jsonpath={.clusters[0].cluster.server}"
        ran = await self._run(["config", "view", "--minify", "-o", way])
        return "" if ran.code else ran.out.decode(errors="replace").strip()

    async def server(self) -> ServerVersion:
        """The version of the cluster; raises `ClusterRefused`, `ClusterSilent`."""
        ran = self._checked(await self._run(["version", "-o", "json"]))
        try:
            found = from_json(ran.out, _Versions).server_version
        except msgspec.MsgspecError:
            return ServerVersion()
        numbers = [re.sub(r"\D.*", "", text) for text in (found.major, found.minor)]
        major, minor = (int(text) if text else 0 for text in numbers)
        return ServerVersion((major, minor), found.git_version)

    async def create(self, manifest: str) -> str:
        """Create a Job; its namespace. Raises `ClusterRefused`, `ClusterSilent`."""
        words = ["create", "-f", "-", "-o", "json"]
        ran = self._checked(await self._run(words, manifest.encode()))
        try:
            return from_json(ran.out, _Created).metadata.namespace
        except msgspec.MsgspecError:
            said = ran.out.decode(errors="replace").strip()[:200] or "nothing"
            raise ClusterSilent(
                f"kubectl was to name the Job that it made, and said: {said}"
            ) from None

    async def look(self, pool_id: str) -> JobView:
        """The pool's Job and pods. Raises `ClusterRefused`, `ClusterSilent`."""
        label = f"{LABEL}={job_name(pool_id)}"
        ran = self._checked(await self._run(["get", "jobs,pods", "-l", label, "-o", "json"]))
        try:
            return read_view(ran.out)
        except msgspec.MsgspecError as error:
            raise ClusterSilent(f"kubectl's answer cannot be read: {error}") from None

    async def events(self, names: Sequence[str]) -> list[PodEvent]:
        """The events about a Job and pods of these names, the newest last; none where they may not be seen."""
        found = await asyncio.gather(*map(self._events_about, names))
        return [event for events in found for event in events]

    async def _events_about(self, name: str) -> list[PodEvent]:
        # A namespace may have thousands of events: the server chooses.
        which = f"--field-selector=involvedObject.name={name}"
        try:
            ran = self._checked(await self._run(["get", "events", which, "-o", "json"]))
            return read_events(ran.out)
        except (ClusterRefused, ClusterSilent, msgspec.MsgspecError):
            return []

    async def room(self, gpu_key: str) -> NodeRoom | None:
        """What nodes have; None where they may not be seen."""
        try:
            ran = self._checked(await self._run(["get", "nodes", "-o", "json"]))
            return read_room(ran.out, gpu_key)
        except (ClusterRefused, ClusterSilent, msgspec.MsgspecError):
            return None

    async def delete(self, pool_id: str) -> None:
        """Delete the pool's Job, if it is there, and with it its pods; raises `ClusterRefused`, `ClusterSilent`."""
        words = ["delete", "job", job_name(pool_id), "--ignore-not-found", "--wait=false"]
        self._checked(await self._run(words))

    async def _run(self, words: Sequence[str], data: bytes = b"") -> ScriptResult:
        limit = [_REQUEST] if self.context else []
        command = shlex.join(kubectl(self.context, self.namespace, [*words, *limit]))
        try:
            return await self._shell.run(f"exec {command}", data=data, limit=_LIMIT)
        except ShellGone as gone:
            raise ClusterSilent(str(gone)) from gone
        except TimeoutError:
            raise ClusterSilent(f"kubectl gave no answer in {_LIMIT:.0f} s") from None

    def _checked(self, ran: ScriptResult) -> ScriptResult:
        if not ran.code:
            return ran
        if ran.code == _NO_PROGRAM:
            raise ClusterRefused(
                "there is no kubectl here: https://kubernetes.io/docs/tasks/tools, and put it into PATH"
            )
        said = _said(ran)
        if is_silent(said):
            raise ClusterSilent(said)
        raise ClusterRefused(advised(said))


# ── its words ───────────────────────────────────────────────────────────────────────────

_SILENT = (
    "Unable to connect to the server",
    "connection refused",
    "was refused - did you specify the right host",
    "TLS handshake timeout",
    "i/o timeout",
    "context deadline exceeded",
    "etcdserver",
    "the server is currently unable to handle the request",
    "ServiceUnavailable",
    "InternalError",
    "unexpected EOF",
    "http2: client connection lost",
    "Client.Timeout exceeded",
    "too many requests",
    ": EOF",
    "connection reset by peer",
    "broken pipe",
    "no route to host",
    "network is unreachable",
    "no such host",
    "did not complete within",
    "may still be processing the request",
)
"""What may be said of a request that was done all the same, too: what it made is looked for, and ended."""

_ADVICE: tuple[tuple[str, str], ...] = (
    (r"context .*does not exist|no context exists", "`kubectl config get-contexts -o name` lists contexts: context=NAME"),
    (
        r"cannot create resource \"jobs\"",
        "ask for a Role that may create jobs and exec into pods of this namespace; the least that suffices is in the page "
        "on Kubernetes. namespace= names another one",
    ),
    (r"cannot \w+ resource", "ask for the Role that the page on Kubernetes shows; namespace= names another namespace"),
    (r"namespaces? .*not found", "`kubectl get namespaces` lists them: namespace=NAME"),
    (
        r"must be logged in|Unauthorized|asked for the client to provide credentials|getting credentials",
        "log in anew, as your cluster's guide says, and see whether `kubectl get pods` works",
    ),
    (r"x509|certificate", "see whether `kubectl get pods` works: the certificate of the cluster is not trusted"),
    (r"exceeded quota", "ask for less, or end what you have there"),
    (r"invalid configuration|no configuration has been provided", "see whether `kubectl get pods` works: there is no kubeconfig here"),
    (r"is invalid|unknown field|error validating", "see pod_overrides=, and `dry_run`, which shows the manifest"),
    (r"admission webhook", "a rule of the cluster forbids it: see pod_overrides="),
)  # fmt: skip


def is_silent(said: str) -> bool:
    """Whether the way to the cluster, and not its rules, is why a command failed."""
    return any(each.lower() in said.lower() for each in _SILENT)


def advised(said: str) -> str:
    """Kubectl's words, and what to type next."""
    advice = next((words for form, words in _ADVICE if re.search(form, said)), "")
    return f"{said.removesuffix('.')}. {advice[:1].upper() if advice[:1].islower() else advice[:1]}{advice[1:]}".strip()


def unreached(said: str) -> str:
    """The words that a cluster cannot be reached, and what to type next."""
    if "localhost:8080" in said:
        return f"kubectl has no cluster here ({said}): set KUBECONFIG, or fetch a kubeconfig as your cluster's guide says"
    return f"{said}. See whether `kubectl get pods` works"


def _said(ran: ScriptResult) -> str:
    lines = [line.strip() for line in ran.err.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"[EWI]\d{4} |Warning: ", line)] or lines
    text = "; ".join(lines) or f"kubectl ended with status {ran.code}"
    return re.sub(
        r"^(error: |Error from server( \(\w+\))?: (error when creating \"STDIN\": )?)", "", text
    )
