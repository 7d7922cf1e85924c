"""The table of options: how each is written, read and explained. Pure.

The option line, help and completion come from this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from skyward_nb.options import aws_readers
from skyward_nb.options import option_readers as readers
from skyward_nb.options.host_access import certificates
from skyward_nb.options.synonyms import OPTION_HINTS
from skyward_nb.words.accelerators import parse_accelerator
from skyward_nb.words.catalogue import KINDS
from skyward_nb.words.checkpoints import read_place
from skyward_nb.words.frameworks import AUTO, WORDS
from skyward_nb.words.hosts import TRUST, read_port
from skyward_nb.words.image import read_python_or_path
from skyward_nb.words.mesh import parse_mesh
from skyward_nb.words.mig import MODELS, parse_mig
from skyward_nb.words.offers import parse_need
from skyward_nb.words.provider_access import IMAGE_ID, IMAGE_NAME
from skyward_nb.words.units import near_words, read_duration, read_size

Scope = Literal["pool", "cell", "verb"]


@dataclass(frozen=True)
class Option:
    """One option; `form` is how its value is written, and a flag has none."""

    scope: Scope
    name: str
    form: str
    help: str
    read: readers.Reader = readers.plain
    choices: tuple[str, ...] = ()

    @property
    def is_flag(self) -> bool:
        """Whether it is written without a value."""
        return not self.form

    @property
    def has_unit(self) -> bool:
        """Whether its value is a number with a unit of time or size, as `2GB`, `10m`."""
        return bool(re.fullmatch(r"\d+[a-zA-Z]+(\|none)?", self.form))

    def value(self, text: str) -> object:
        """The value of a text; raises `OptionError`."""
        return self.read(self.name, text)


def _flag(scope: Scope, name: str, help_: str) -> Option:
    return Option(scope, name, "", help_, readers.flag)


def _choice(scope: Scope, name: str, form: str, help_: str) -> Option:
    choices = tuple(form.split("|"))
    return Option(scope, name, form, help_, readers.choice(choices), choices)


_pool, _cell, _verb = partial(Option, "pool"), partial(Option, "cell"), partial(Option, "verb")
_MODELS = (*(kind.name for kind in KINDS), "none")
_PROFILES = (*dict.fromkeys(profile for model in MODELS for profile in model.profiles), "none")
_REGIONS = readers.aws_names(r"[a-z]{2,3}(-[a-z]+)+-\d", "us-east-1")
_ZONES = readers.aws_names(r"[a-z]{2,3}(-[a-z0-9]+)+-\d[a-z]", "us-east-1a")
_TYPE = readers.aws_name(r"[a-z][a-z0-9\-]*\.[a-z0-9\-]+", "g6.xlarge")
_AMI = readers.aws_name(
    f"{IMAGE_ID}|{IMAGE_NAME}", "ami-0123456789abcdef0, or one that %sky bake has given"
)
_SUBNETS = readers.aws_names(r"subnet-[0-9a-f]{8,17}", "subnet-0123456789abcdef0")
_RESERVED = readers.aws_name(aws_readers.RESERVED, "cr-0123456789abcdef0")
_GROUP = readers.aws_name(r"sg-[0-9a-f]{8,17}", "sg-0123456789abcdef0")

# fmt: off
OPTIONS: tuple[Option, ...] = (
    _pool("nodes", "N", "number of nodes (1)", readers.count),
    _pool("ranks_per_node", "auto|N", "ranks on each node (auto: one per accelerator, or 1)", readers.slots),
    _pool("accelerator", "A100|A100:8|L4:0.5|none", "accelerators of each node (none)",
          readers.alone(parse_accelerator), _MODELS),
    _pool("mig", "3g.40gb", "MIG profile: a rank for each slice of an accelerator (none)",
          readers.alone(parse_mig), _PROFILES),
    _pool("partition", "", "cut idle GPUs into these slices; =NAME: Slurm's partition",
          readers.partition),
    _pool("simulate", "", "the same ranks on CPU (=cuda: and torch says it has CUDA)",
          readers.simulation, ("cuda", "yes", "no")),
    _choice("pool", "provider", "local|ssh|slurm|kubernetes|ray|sky|aws", "source of nodes (ssh with hosts=, else local)"),
    _pool("hosts", "a,me@b:22|@file", "hosts to log in to by SSH: the nodes", readers.hosts),
    _pool("user", "NAME", "user to log in as (OpenSSH's config)", readers.user),
    _pool("port", "22", "port of the hosts' sshd (OpenSSH's config)", read_port),
    _pool("key", "FILE", "private key for the hosts (OpenSSH's keys)"),
    _pool("config", "FILE", "OpenSSH config to read instead of ~/.ssh/config"),
    _pool("trust", "known|first|values", "host keys: known or learnt (known); values: read no pickles",
          readers.trust, TRUST),
    _pool("cache", "/scratch/$USER", "folder for environments on hosts (~/.cache/skyward_nb)", readers.far_folder),
    _pool("ca", "FILE", "certificates that hosts trust, too: of a proxy that reads TLS", certificates),
    _flag("pool", "trust_local_users", "frameworks join hosts that other people may log in to"),
    _pool("login", "me@login", "login node of a Slurm cluster, reached by ssh (this machine)", readers.slurm_name),
    _pool("job", "current|ID", "a job of Slurm that runs, whose nodes are used", readers.job),
    _pool("account", "NAME", "account of Slurm's job (yours)", readers.slurm_name),
    _pool("qos", "NAME", "quality of service of Slurm's job", readers.slurm_name),
    _pool("constraint", "a100&nvme", "features of Slurm's nodes"),
    _pool("reservation", "NAME|cr-...", "reservation of Slurm's job, or EC2's", readers.slurm_name),
    _pool("gres", "gpu:a100:4", "devices of each node, as Slurm calls them", readers.slurm_name),
    _flag("pool", "exclusive", "whole nodes of Slurm, shared with no other job"),
    _pool("extra", '"--nice=10"', "further arguments of Slurm's sbatch", readers.arguments),
    _pool("module", "cuda/12.4,...", "modules that are loaded on Slurm's nodes", readers.slurm_names),
    _pool("container", "IMAGE", "container of Slurm's nodes, by pyxis or apptainer", readers.slurm_name),
    _pool("address", "auto|ray://HOST:10001", "a Ray cluster (auto: this machine's, or RAY_ADDRESS)", readers.address),
    _pool("resources", "TPU:4,...", "further resources of each Ray node, by Ray's names", readers.resources),
    _flag("pool", "waits", "wait for nodes that Ray's autoscaler adds"),
    _pool("infra", "gcp|gcp/us-central1", "where SkyPilot rents (wherever it is cheapest)", readers.infra),
    _pool("context", "NAME", "context of kubectl (its current one)", readers.context),
    _pool("namespace", "NAME", "namespace of Kubernetes (the context's)", readers.kubernetes_name),
    _pool("queue", "NAME", "queue of Kueue on Kubernetes (none)", readers.kubernetes_name),
    _pool("service_account", "NAME", "service account of pods (the namespace's default)", readers.kubernetes_name),
    _pool("cpus", "8|8+", "CPUs of a rented machine, node or pod; +: or more", parse_need),
    _pool("memory", "32|32+", "GB of memory of a rented machine, node or pod; +: or more", parse_need),
    _pool("region", "us-east-1,...", "regions to rent machines in, the first first (AWS's config)", _REGIONS),
    _pool("zones", "us-east-1a,...", "zones that machines may be in, the best first", _ZONES),
    _pool("instance_type", "g6.xlarge", "type of machines (the cheapest that fits)", _TYPE),
    _choice("pool", "spot", "no|yes|auto|cheapest", "machines that AWS may reclaim; auto: if any (no)"),
    _choice("pool", "on_preempt", "tell|replace", "whether the next run replaces lost machines or jobs (tell)"),
    _pool("checkpoint", "FOLDER|s3://bucket/dir", "where ranks keep names before a machine goes",
          read_place),
    _flag("pool", "resume", "a new pool begins with the names of its newest checkpoint"),
    _pool("max_cost", "5", "dollars after which the pool ends itself", readers.dollars),
    _pool("max_hourly_cost", "2.5", "most dollars an hour of each machine", readers.dollars),
    _pool("confirm_above", "5", "dollars an hour above which you are asked first (5)", readers.dollars),
    _flag("pool", "yes", "rent machines without asking"),
    _pool("ami", "ami-...|NAME", "image, or a baked one's name (Ubuntu; for GPUs AWS's own)", _AMI),
    _pool("subnet", "subnet-...,...", "subnets of the machines (AWS's default network)", _SUBNETS),
    _pool("security_group", "sg-...", "security group of the machines (one for the pool)", _GROUP),
    _pool("public_ip", "yes|no", "public addresses of machines (as the subnet says)",
          readers.flag, ("yes", "no")),
    _pool("jump", "me@bastion|ssm", "way to machines: a host, or AWS's Session Manager", aws_readers.jump),
    _pool("caller", "1.2.3.4,...", "addresses that may log in (yours, as a service sees it)", aws_readers.networks),
    _pool("tags", "K=V,...", "further tags of all that is made at AWS", aws_readers.tags),
    _pool("disk", "200GB", "disk of a rented machine (100GB)", aws_readers.gigabytes),
    _pool("throughput", "125-2000", "MiB/s of that disk (gp3's 125)", aws_readers.throughput),
    _pool("instance_profile", "NAME|ARN", "instance profile whose role the machines get (none)", aws_readers.profile),
    _pool("volumes", "s3://bucket/a:/data", "buckets (s3), efs:// or fsx:// as folders; :rw to write",
          aws_readers.volumes),
    _pool("capacity_block", "cr-...", "your capacity block of EC2 (with instance_type=, zones=)", _RESERVED),
    _pool("warm", "2h", "machines are stopped at the end, not ended, for this time", aws_readers.warm),
    _pool("aws_profile", "NAME", "profile of AWS's config (AWS_PROFILE)"),
    _pool("framework", "torch|keras:jax|auto|none", "framework of the ranks (auto: by imports)",
          readers.frameworks, (*WORDS, *AUTO, "none")),
    _choice("pool", "backend", "auto|gloo|nccl", "backend of the framework's process group (auto)"),
    _pool("collective_timeout", "30m", "longest time of a torch collective (torch's)", read_duration),
    _pool("mesh", "fsdp:2,tp:2", "shape of the ranks for sky.mesh() and sky.parallelize()", readers.alone(parse_mesh)),
    _pool("cluster", "yes|no", "no: each node is a world of its own (yes)", readers.flag, ("yes", "no")),
    _pool("image", "NAME|python:3.12", "a sky.Image of the notebook, or the pods' container image",
          readers.image),
    _pool("python", "3.12|/opt/env/bin/python", "version of Python, or an environment on the nodes",
          readers.alone(read_python_or_path)),
    _pool("pip", '"torch numpy>=2"', "packages of the ranks, as pip takes them", readers.packages),
    _pool("apt", '"ffmpeg git"', "Debian packages of the nodes", readers.packages),
    _pool("env", "K=V,...", "environment variables of the ranks", readers.env),
    _pool("memory_limit", "2GB|none", "most memory of each rank with what it starts (none)", readers.size_or_none),
    _pool("cpu_limit", "2|none", "most CPUs of each rank, and threads of its frameworks (none)",
          readers.count_or_none),
    _pool("idle", "10m", "lifetime without a client (10m; on other machines 30m)", read_duration),
    _pool("ttl", "4h", "maximum lifetime, even mid-run", read_duration),
    _flag("pool", "keep", "the pool survives its notebook or script, for `idle`"),
    _pool("heartbeat", "2s", "longest silence of a machine; after three it is cut off", read_duration),
    _pool("grace", "2s", "time that stopped ranks have to end before they are killed", read_duration),
    _pool("pool", "NAME", "name of the pool (default)", readers.pool_name),
    _cell("ranks", "all|head|0,2-3|::2", "ranks that run the cell (all)"),
    _cell("out", "NAME", "name for the run's value", readers.variable),
    _cell("pull", "a,b", "names to bring from the ranks", readers.variables),
    _choice("cell", "gather", "all|head|none", "ranks whose values come back (all)"),
    _cell("push", "auto|none|a,b", "names to send (auto: those that the cell needs)", readers.push),
    _cell("stdout", "all|head|none|0,1", "ranks whose standard output is shown (all)"),
    _cell("stderr", "all|head|none|0,1", "ranks whose standard error is shown (all)"),
    _cell("text", "256kB", "most text of a run that the notebook keeps", read_size),
    _cell("limit", "2GB", "most bytes of a value that comes back", read_size),
    _cell("timeout", "10m", "time after which the run is stopped, and each rank's line shown", read_duration),
    _choice("cell", "on_error", "stop|wait", "what other ranks do when one fails (stop)"),
    _flag("cell", "detach", "run in the background: the cell's value is a handle"),
    _flag("cell", "dry_run", "show what would be sent; send and run nothing"),
    _choice("cell", "profile", "comm", "time in collectives per rank, with traces (framework=torch or jax)"),
    _flag("cell", "replace", "take a pool down that is up with other options, and make the new one"),
    _flag("cell", "quiet", "show no picture unless something fails"),
    _verb("fetch", "runs/*.pt,...", "files of a script's folder to bring from other machines", readers.paths),
    _choice("verb", "folder", "auto|all|none", "whether the script's folder is sent: if below 1 GB, whole, or not"),
    _verb("cells", "3-7,9", "numbers of the cells that become a script (the last one on ranks)", readers.numbers),
    _verb("as", "NAME", "name of the value in the notebook", readers.variable),
    _verb("run", "7", "number of the run, as its picture shows it (the last)"),
    _verb("rank", "all|head|0,2-3", "ranks whose output is shown (all); the rank to debug"),
    _verb("node", "all|0,2-3|gpu1", "machines whose setup and agent logs are shown"),
    _verb("lines", "N", "at most this many of the last lines", readers.count),
    _verb("save", "FILE", "file to write to instead"),
    _flag("verb", "now", "machines that warm= would stop, or has stopped, end now"),
    _flag("verb", "remove", "remove a baked image, and the snapshots that it consists of"),
    _flag("verb", "follow", "go on with what comes, until the run is over"),
)
# fmt: on

BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}

RUN_TAKES = (
    "ranks",
    "stdout",
    "stderr",
    "text",
    "timeout",
    "on_error",
    "detach",
    "out",
    "profile",
    "replace",
    "quiet",
    "fetch",
    "folder",
)
"""The options of a cell that a script takes, too."""

TAKES: dict[str, tuple[str, ...]] = {
    "down": ("pool", "now"),
    "status": ("pool",),
    "cost": ("pool",),
    "check": ("pool",),
    "restart": ("pool",),
    "sweep": ("now",),
    "bake": ("remove", "region", "pool"),
    "off": (),
    "push": ("ranks", "pool"),
    "pull": ("ranks", "as", "gather", "limit", "pool"),
    "vars": ("ranks", "pool"),
    "attach": ("pool", "detach"),
    "logs": ("run", "rank", "node", "lines", "save", "follow", "pool"),
    "run": RUN_TAKES,
    "torchrun": tuple(each for each in RUN_TAKES if each != "ranks"),
    "script": ("cells",),
    "fetch": ("ranks", "pool"),
    "show": ("run", "pool"),
    "debug": ("rank", "pool"),
}
"""The options of the verbs of `%sky` that do not take all options of a pool."""

UP_TAKES = ("dry_run", "replace")
"""The options of a cell that `%sky up` takes, too."""

NAMES_A_POOL: tuple[str, ...] = (
    "down",
    "status",
    "cost",
    "check",
    "restart",
    "vars",
    "attach",
    "debug",
    "show",
    "logs",
)
"""The verbs that take the name of a pool without `pool=`."""


def near_option(key: str, taken: Iterable[str]) -> str:
    """`; did you mean nodes?` for `node`, an option of another place; these are nearer than what is misspelt."""
    return near_words(key, taken, 0.85)


def unknown_option(key: str, scopes: tuple[Scope, ...]) -> str:
    """The message about an option that is not in these `scopes`."""
    if key in BY_NAME and BY_NAME[key].scope == "verb":
        verb = next(verb for verb, taken in TAKES.items() if key in taken)
        taken = [option.name for option in OPTIONS if option.scope in scopes]
        return f"{key} belongs to %sky {verb}{near_option(key, taken)}"
    if key in BY_NAME:
        return f"{key} belongs on a cell's line: %%sky_remote {key}=..."
    if key in OPTION_HINTS:
        return f"there is no option {key!r}: {OPTION_HINTS[key]}"
    near = near_words(key, [option.name for option in OPTIONS if option.scope in scopes])
    return f"there is no option {key!r}{near or '; %sky help lists them'}"
