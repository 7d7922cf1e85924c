"""A program that speaks the command line of SkyPilot 0.14, with its recorded answers; its machines are sshds of tests.

Its folder `SKY_FOLDER` has `calls` (a line of JSON for each command), `clusters.json`, and files by which a test says what
is to go wrong.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("SKY_FOLDER", "."))
CLUSTERS = FOLDER / "clusters.json"
PLAN = """\
\x1b[1mEstimated cost: \x1b[0m$58.8 / hour

Considered resources ({nodes} node{s}):
────────────────────────────────────────────────────────────────────────────────────────────
 INFRA               INSTANCE        vCPUs   Mem(GB)   GPUS         COST ($)   CHOSEN
────────────────────────────────────────────────────────────────────────────────────────────
 GCP (us-central1)   a2-highgpu-8g   96      680       A100:8       {cost}     \x1b[32m   ✔\x1b[0m
 AWS (us-east-1)     p4d.24xlarge    96      1152      A100:8       65.54
────────────────────────────────────────────────────────────────────────────────────────────
"""
LAUNCHED = """\
⚙︎ Launching on GCP us-central1 (us-central1-a).
└── Instances are up.
✓ Cluster launched: {name}.  View logs: sky logs --provision {name}
⚙︎ Syncing files.
✓ Setup detached.
⚙︎ Job submitted, ID: 1

📋 Useful Commands
Cluster name: {name}
├── To log into the head VM:    ssh {name}
└── To teardown the cluster:    sky down {name}
"""
NONE = """\
YAML to run: task.yaml
Running on cluster: sky-3ac1-root
sky.exceptions.NoCloudAccessError: Cloud access is not set up. Run: \x1b[1msky check\x1b[0m
"""
"""What SkyPilot 0.14.1 answered on a machine without credentials; the next one, and `NOT_FOUND`, too."""
NO_CATALOGUE = """\
YAML to run: task.yaml
sky.exceptions.CloudError: requests error (ConnectionError): HTTPSConnectionPool(host='raw.githubusercontent.com', port=443): Max retries exceeded with url: /skypilot-org/skypilot-catalog/master/catalogs/v8/common/accelerators.csv (Caused by NameResolutionError("HTTPSConnection(host='raw.githubusercontent.com', port=443): Failed to resolve 'raw.githubusercontent.com' ([Errno -2] Name or service not known)"))
"""
NOT_FOUND = "Cluster(s) not found: \x1b[1m{name}\x1b[0m.\n"
FAILED = """\
⚙︎ Launching on GCP us-central1 (us-central1-a).
\x1b[31m⨯ Failed to set up SkyPilot runtime on cluster.\x1b[0m
sky.exceptions.ResourcesUnavailableError: Failed to acquire resources in all zones in us-central1 for {{GCP({{'A100': 8}})}}.
To keep retrying until the cluster is up, use the `--retry-until-up` flag.
"""


def clusters() -> dict:
    return json.loads(CLUSTERS.read_text()) if CLUSTERS.exists() else {}


def keep(known: dict) -> None:
    new = CLUSTERS.with_suffix(".new")
    new.write_text(json.dumps(known))
    new.rename(CLUSTERS)


def option(words: list, name: str, default: str = "") -> str:
    return next(
        (each.partition("=")[2] for each in words if each.startswith(f"--{name}=")), default
    )


def says(name: str) -> bool:
    return (FOLDER / name).exists()


def launch(words: list) -> int:
    nodes = int(option(words, "num-nodes", "1"))
    if says("no-cloud"):
        print(NONE)
        return 1
    print(PLAN.format(nodes=nodes, s="s" * (nodes > 1), cost=f"{29.39 * nodes:.2f}"), flush=True)
    if "--dryrun" in words:
        return 0
    name = option(words, "cluster")
    task = json.loads(Path(words[-1]).read_text())
    known = clusters()
    known[name] = {"status": "INIT", "pids": [], "nodes": nodes}
    keep(known)
    if says("fails"):
        print(FAILED)
        return 1
    if says("hangs"):
        try:
            print("⚙︎ Launching on GCP us-central1 (us-central1-a).", flush=True)
            subprocess.run(["sleep", "600"], check=False)
        except KeyboardInterrupt:
            print(
                "⚙︎ Request will continue running asynchronously.\n└── To cancel the request, run: sky api cancel 1f2e3d4c"
            )
        return 1
    write_ssh(name, nodes)
    for rank in range(nodes if not says("no-keeper") else 0):
        job = subprocess.Popen(
            ["/bin/bash", "-c", task["run"]],
            env={**os.environ, "SKYPILOT_NODE_RANK": str(rank)},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        known[name]["pids"].append(job.pid)
    known[name]["status"] = "UP"
    keep(known)
    print(LAUNCHED.format(name=name))
    return 0


def write_ssh(name: str, nodes: int) -> None:
    machine = json.loads((FOLDER / "machine.json").read_text())
    folder = Path("~/.sky/generated/ssh").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    text = ""
    for number in range(nodes):
        host = name if number == 0 else f"{name}-worker{number}"
        text += f"""# Added by sky (use `sky stop/down {name}` to remove)
Host {host}
  HostName {machine["address"]}
  User {machine["user"]}
  IdentityFile {machine["key"]}
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile=/dev/null
  GlobalKnownHostsFile=/dev/null
  Port {machine["port"]}
  SetEnv SKYPILOT_CLUSTER_NAME={name}

"""
    (folder / name).write_text(text)


def status(words: list) -> int:
    print("\x1b[36mRefreshing\x1b[0m")
    named = [each for each in words[1:] if not each.startswith("-")]
    found = [
        {"name": name, "launched_at": 1, "status": each["status"], "autostop": 1, "to_down": True,
         "resources_str": "2x(gpus=A100:8, a2-highgpu-8g, ...)", "cloud": "GCP", "init_status_reason": each.get("why")}
        for name, each in clusters().items() if name in named
    ]  # fmt: skip
    if not found:
        print(NOT_FOUND.format(name=named[0]), end="")
    print(json.dumps(found, indent=2))
    return 0


def down(words: list) -> int:
    name, known = words[-1], clusters()
    if name not in known:
        print("Cluster(s) not found (tip: see `sky status`).")
        return 0
    if says("down-fails"):
        print("\nSummary:\n  ✗ Failed: " + name + " (quota of the API)\n")
        return 1
    for pid in known.pop(name)["pids"]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, 15)
    keep(known)
    Path("~/.sky/generated/ssh").expanduser().joinpath(name).unlink(missing_ok=True)
    print("\nSummary:\n  ✓ Succeeded: " + name)
    return 0


def main() -> int:
    words = sys.argv[1:]
    with (FOLDER / "calls").open("a") as file:
        file.write(json.dumps(words) + "\n")
    ways = {
        "launch": launch,
        "status": status,
        "down": down,
        "api": lambda words: says("cancel-fails"),
    }
    return ways[words[0]](words)


if __name__ == "__main__":
    sys.exit(main())
