"""A real Kubernetes cluster of this machine: a control plane and two kubelets, in namespaces of their own.

All of it ends with one process: processes, addresses and mounts are in namespaces, of which that one is the first. A pod
sees this machine's programs, read-only, so no image is fetched from anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Phase

BIN = Path(
    os.environ.get("SKYWARD_KUBERNETES_BIN")
    or Path(__file__).resolve().parents[2] / "build" / "kubernetes" / "bin"
)
"""The folder of the programs that Debian has no package of; `.ci/kubernetes` fills it."""
BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
PACKAGED = ("etcd", "containerd", "ctr", "runc", "kubectl", "busybox", "nsenter", "unshare", "ip")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/bin"
IMAGE, PAUSE = "local/box:1", "local/pause:1"
NODES = ("k1", "k2")
SLOW_END = 150.0
"""Seconds for the end of pods that are deleted while their containers begin.

Their first process has no handler yet for TERM and has its 30 s of grace; a kubelet that is busy then looks for it for 30 more.
"""
_PORT = 16443
_LONG = 300.0
_HOST = "10.99.0.{}"


def lacks() -> str:
    """Why no cluster can be started here; "" where it can."""
    if os.getuid():
        return "Kubernetes of these tests needs root"
    missing = [each for each in PACKAGED if shutil.which(each, path=PATH) is None]
    missing += ["bridge of cni"] * (not Path("/usr/lib/cni/bridge").exists())
    missing += [each for each in BUILT if not (BIN / each).exists()]
    words = f"there is no Kubernetes here ({', '.join(missing)}): `make test-kubernetes` builds it"
    return words * bool(missing)


_STANDS = (
    "{range .items[*]}{.kind} {.metadata.name} {.metadata.creationTimestamp} deleted {.metadata.deletionTimestamp} "
    "{.metadata.finalizers} {.status}{'\\n'}{end}"
)
_FIRST = """
mount -t tmpfs tmpfs /run && mkdir -p /run/netns /run/lock || exit
mount -t tmpfs tmpfs /var/log || exit
ip link set lo up
ip link add town type bridge && ip link set town up || exit
for each in 1 2; do ip addr add 10.99.0.$each/24 dev town || exit; done
echo 1 >/proc/sys/net/ipv4/ip_forward
echo up
exec cat
"""
"""Process 1 of the namespaces; it ends when nobody holds its stdin any more."""


class Town:
    """The cluster; `folder` has a short path, as sockets need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("log", "certs", "bin", "img", "home"):
            (folder / name).mkdir()
        self._first = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c", _FIRST],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PATH": PATH},
        )  # fmt: skip
        assert self._first.stdout.readline() == b"up\n"
        children = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text()
        self.pid = int(children.split()[0])
        self.environ = {
            "PATH": f"{folder}/bin:{PATH}",
            "KUBECONFIG": str(folder / "kubeconfig"),
            "HOME": str(folder / "home"),
        }
        self._kubectl()

    def _kubectl(self) -> None:
        """A kubectl that reaches the cluster's namespace, as a laptop's reaches a cluster."""
        real = shutil.which("kubectl", path=PATH)
        script = self.folder / "bin" / "kubectl"
        noted = f'case " $* " in *" exec "*) echo "$*" >>{self.folder}/execs ;; esac'
        run = f'exec nsenter --net=/proc/{self.pid}/ns/net -- {real} "$@"'
        script.write_text(f"#!/bin/sh\n{noted}\n{run}\n")
        script.chmod(0o755)

    def execs(self, pod: str) -> int:
        """How often `kubectl exec` was begun for a pod."""
        return sum(f" {pod} " in line for line in (self.folder / "execs").read_text().splitlines())

    # ── its daemons ─────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start all of it; returns when both nodes are ready."""
        _images(self.folder / "img")
        self._write()
        store, peer = "http://127.0.0.1:23790", "http://127.0.0.1:23800"
        self._begin("etcd", "etcd", "--data-dir=/run/etcd", f"--listen-client-urls={store}",
                    f"--advertise-client-urls={store}", f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}")  # fmt: skip
        key = self.folder / "sa.key"
        self._begin(
            "apiserver", BIN / "kube-apiserver", f"--etcd-servers={store}", f"--secure-port={_PORT}",
            "--bind-address=0.0.0.0", f"--advertise-address={_HOST.format(1)}", f"--cert-dir={self.folder}/certs",
            f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=Node,RBAC",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/24",
            "--feature-gates=TTLAfterFinished=true", "--kubelet-preferred-address-types=InternalIP",
            "--default-not-ready-toleration-seconds=20", "--default-unreachable-toleration-seconds=20",
        )  # fmt: skip
        for number, node in enumerate(NODES, 1):
            self._begin_containerd(node, number)
        until(lambda: self.say("get", "--raw", "/readyz") == "ok", _LONG)
        config = f"--kubeconfig={self.folder}/kubeconfig"
        self._begin(
            "controllers", BIN / "kube-controller-manager", config, f"--service-account-private-key-file={key}",
            f"--root-ca-file={self.folder}/certs/apiserver.crt", "--leader-elect=false",
            "--feature-gates=TTLAfterFinished=true", "--bind-address=127.0.0.1", "--port=0",
            "--node-monitor-grace-period=20s",
        )  # fmt: skip
        self._begin("scheduler", BIN / "kube-scheduler", config, "--leader-elect=false", "--bind-address=127.0.0.1",
                    "--port=0")  # fmt: skip
        for number, node in enumerate(NODES, 1):
            self.start_kubelet(node, number)
        self._await_nodes()
        until(lambda: self.say("get", "serviceaccount", "default", "-o", "name"), _LONG)

    def _await_nodes(self) -> None:
        until(
            lambda: self.say("get", "nodes", "--no-headers").count(" Ready ") == len(NODES), _LONG
        )

    def _begin_containerd(self, node: str, number: int) -> None:
        own = self.folder / node
        for name in ("cni", "kubelet"):
            (own / name).mkdir(parents=True)
        (own / "cni" / "10.conf").write_text(json.dumps({
            "cniVersion": "0.3.1", "name": f"net{number}", "type": "bridge", "bridge": f"pods{number}", "isGateway": True,
            "ipMasq": False, "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": f"{own}/ipam", "ranges": [[{"subnet": f"10.88.{number}.0/24"}]],
                     "routes": [{"dst": "0.0.0.0/0"}]},
        }))  # fmt: skip
        cri = '[plugins."io.containerd.grpc.v1.cri"'
        (own / "containerd.toml").write_text(f"""
version = 2
root = "{own}/root"
state = "{own}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{own}/cd.sock"
[ttrpc]
  address = "{own}/cd.ttrpc"
{cri}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  {cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{own}/cni"
  {cri}.containerd]
    snapshotter = "native"
""")
        self._begin(f"containerd-{node}", "containerd", "-c", own / "containerd.toml")
        until(lambda: (own / "cd.sock").exists(), _LONG)
        for image in ("box", "pause"):
            until(
                lambda image=image: (
                    not subprocess.run(
                        self._inside("ctr", "-a", own / "cd.sock", "-n", "k8s.io", "images", "import", "--snapshotter",
                                     "native", self.folder / "img" / f"{image}.tar"),
                        capture_output=True, check=False,
                    ).returncode
                )
            )  # fmt: skip

    def start_kubelet(self, node: str, number: int) -> None:
        """Start the kubelet of a node."""
        own = self.folder / node
        (own / "kubelet.yaml").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [], "failSwapOn": False, "port": 10250 + 10 * number, "readOnlyPort": 0,
            "healthzPort": 0, "address": _HOST.format(number), "resolvConf": "", "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100, "maxPods": 20, "nodeStatusUpdateFrequency": "2s",
        }))  # fmt: skip
        self._begin(
            f"kubelet-{node}", BIN / "kubelet", f"--config={own}/kubelet.yaml", f"--kubeconfig={self.folder}/kubeconfig",
            f"--hostname-override={node}", f"--root-dir={own}/kubelet", "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{own}/cd.sock", f"--cert-dir={own}/kubelet/pki",
            f"--node-ip={_HOST.format(number)}", f"--volume-plugin-dir={own}/plugins", "--cgroup-root=/",
        )  # fmt: skip

    def _write(self) -> None:
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        rows = [
            "admintoken,admin,admin,system:masters",
            "plaintoken,plain,plain",
            "roletoken,role,role",
        ]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        server = f"https://127.0.0.1:{_PORT}"
        cluster = {"name": "town", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
        names = ("admin", "plain", "role")
        (self.folder / "kubeconfig").write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "admin",
            "clusters": [cluster, {"name": "away", "cluster": {"server": "https://127.0.0.1:9"}}],
            "users": [{"name": each, "user": {"token": f"{each}token"}} for each in names],
            "contexts": [
                *({"name": each, "context": {"cluster": "town", "user": each}} for each in names),
                {"name": "away", "context": {"cluster": "away", "user": "admin"}},
            ],
        }))  # fmt: skip

    def _inside(self, *words: object) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-p", "--", *map(str, words)]

    def _begin(self, name: str, *words: object) -> None:
        with (self.folder / "log" / name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._inside(*words),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PATH": PATH},
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill a daemon: `kubelet-k2`, `apiserver`; what it has started stays."""
        process = self._running.pop(name)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (*map(int, children), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def cut(self, node: str) -> None:
        """Kill a node's kubelet, and cut its pods off."""
        self.kill(f"kubelet-{node}")
        number = NODES.index(node) + 1
        subprocess.run(self._inside("ip", "link", "set", f"pods{number}", "down"), check=True)

    def mend(self, node: str) -> int:
        """Bring a node back; the pid of its new kubelet's command."""
        number = NODES.index(node) + 1
        subprocess.run(self._inside("ip", "link", "set", f"pods{number}", "up"), check=True)
        self.start_kubelet(node, number)
        self._await_nodes()
        return self._running[f"kubelet-{node}"].pid

    def stop(self) -> None:
        """End all of it: no process of its namespace outlives the first."""
        self._first.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._first.wait()
        self._first.stdout.close()
        for process in self._running.values():
            process.wait()
        self._running.clear()
        mounts = Path("/proc/self/mountinfo").read_text()
        assert str(self.folder) not in mounts, "a mount of the cluster is seen outside of it"
        _remove_groups(self.folder.name)

    # ── its commands ────────────────────────────────────────────────────────────────────

    def say(self, *words: str, data: str = "") -> str:
        """What kubectl prints; "" where it fails."""
        done = subprocess.run(
            ["kubectl", "--context=admin", *words],
            env={**os.environ, **self.environ}, input=data, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.strip() if not done.returncode else ""

    def things(self) -> list[str]:
        """Jobs and pods of any namespace, by an answer of the API."""
        done = subprocess.run(
            ["kubectl", "--context=admin", "get", "jobs,pods", "-A", "-o", "name"],
            env={**os.environ, **self.environ}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    def pods(self) -> str:
        """Jobs and pods as they stand, and what the kubelets said last."""
        told = self.say("get", "jobs,pods", "-A", "-o", f"jsonpath={_STANDS}")
        names = ("controllers", *(f"kubelet-{node}" for node in NODES))
        logs = [(self.folder / "log" / name).read_text()[-2500:] for name in names]
        return "\n".join((told, *logs))

    def is_empty(self) -> bool:
        """Whether there is neither a Job nor a pod."""
        return not self.things()


def phases(events: list[object]) -> list[str]:
    """What a pool says that it does."""
    return [each.text for each in events if isinstance(each, Phase) and each.text]


def pods_of(pool: Pool) -> list[str]:
    """The names of a pool's pods, in the order of nodes."""
    return [machine.name for machine in pool.context.generations.machines]


def overrides(extra: dict[str, object] | None = None) -> dict[str, object]:
    """Parts of a pod that give it this machine's programs and this Python, read-only."""
    places = [*dict.fromkeys(str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix))]
    code = str(Path(__file__).resolve().parents[2])
    mounts = [("usr", "/usr", "/usr"), ("lib", "/usr/lib", "/lib"), ("lib64", "/usr/lib64", "/lib64"), ("bin", "/usr/bin", "/bin"),
              ("sbin", "/usr/sbin", "/sbin"), ("ssl", "/etc/ssl", "/etc/ssl")]  # fmt: skip
    mounts += [
        (f"own{number}", place, place)
        for number, place in enumerate([*places, code])
        if not place.startswith("/usr/")
    ]
    taken: list[tuple[str, str, str]] = []
    for mount in mounts:
        if not any(mount[2].startswith(f"{other[2]}/") for other in taken):
            taken.append(mount)
    container = {
        "name": "main",
        "imagePullPolicy": "Never",
        "volumeMounts": [
            {"name": name, "mountPath": to, "readOnly": True} for name, _, to in taken
        ],
    }
    volumes = [{"name": name, "hostPath": {"path": source}} for name, source, _ in taken]
    spec = {"containers": [container], "volumes": volumes, "dnsPolicy": "Default", **(extra or {})}
    return {"spec": spec}


def _images(folder: Path) -> None:
    """Two images of a static busybox; `pause` does nothing for ever."""
    busybox = shutil.which("busybox", path=PATH)
    dirs = ("bin", "tmp", "usr", "lib", "lib64", "sbin", "root", "etc", "proc", "sys", "dev")
    _image(folder / "box.tar", IMAGE, busybox, ["/bin/busybox", "sleep", "3600"], dirs)
    _image(folder / "pause.tar", PAUSE, busybox, ["/bin/busybox", "sleep", "2147483"], ("bin",))


def _image(out: Path, name: str, program: str, command: list[str], dirs: tuple[str, ...]) -> None:
    """An archive of an image, as `ctr images import` takes it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for each in dirs:
            made = tarfile.TarInfo(each)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777 if each == "tmp" else 0o755
            archive.addfile(made)
        own = archive.gettarinfo(program, "bin/busybox")
        own.uid, own.gid, own.mode = 0, 0, 0o755
        with Path(program).open("rb") as file:
            archive.addfile(own, file)
    data = layer.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    config = json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()  # fmt: skip
    title = f"{hashlib.sha256(config).hexdigest()}.json"
    index = json.dumps([{"Config": title, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(out, "w") as archive:
        for path, content in ((title, config), ("layer.tar", data), ("manifest.json", index)):
            part = tarfile.TarInfo(path)
            part.size = len(content)
            archive.addfile(part, io.BytesIO(content))


def _remove_groups(mark: str) -> None:
    """Remove the control groups of containers, which outlive their namespace."""
    root = Path("/sys/fs/cgroup")
    for parent in (*root.glob("*/k8s.io"), *root.glob("*/kubepods")):
        # Another cluster of this machine may remove some of them just now.
        for folder, _, _ in os.walk(parent, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        with contextlib.suppress(OSError):
            parent.rmdir()


@contextlib.contextmanager
def asked_by_this_process(cluster: Town) -> Iterator[None]:
    """Within, kubectl of this process, and of what it starts, asks this cluster."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in cluster.environ.items():
            if name != "HOME":
                patched.setenv(name, value)
        yield


@contextlib.contextmanager
def town() -> Iterator[Town]:
    """A cluster that is up."""
    folder = Path(tempfile.mkdtemp(prefix="sky-k8s-"))
    made = Town(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    began = time.monotonic()
    with town() as shown:
        print(f"up after {time.monotonic() - began:.1f} s")
        print(
            "\n".join(f"export {key}={value}" for key, value in shown.environ.items()), flush=True
        )
        sys.stdin.read()
