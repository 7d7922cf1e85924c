"""What a pool asks of Ray, and what is said of Ray's answers: pure."""

import msgspec
import pytest

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.defaults import with_defaults
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import check_fits, spec_of
from skyward_nb.providers.ray.group_words import (
    bundle,
    dry_run_lines,
    keeper_program,
    names_of,
    spell_pending,
    why_infeasible,
)
from skyward_nb.providers.ray.messages import (
    ClusterNode,
    GroupState,
    HelperFailed,
    StartedActor,
)
from skyward_nb.providers.ray.ray_errors import spell_failure
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.provider_access import RayAccess
from skyward_nb.words.spec import PoolSpec


def spec(line):
    return spec_of(PoolSpec(), with_defaults(parse(line, scopes=("pool",)), []).pool)


# ── what is asked ───────────────────────────────────────────────────────────────────────


def test_a_line_and_python_say_the_same():
    line = spec("provider=ray address=ray://head:10001 resources=TPU:4,disk:0.5")
    source = sky.Ray(address="ray://head:10001", resources={"TPU": 4, "disk": 0.5})
    assert spec_for("default", provider=source).ray == line.ray
    assert spec_for("default", provider=sky.Ray(waits=True)).ray == spec("provider=ray waits").ray
    assert spec("provider=ray").ray == RayAccess()
    assert spec("provider=ray").idle == 1800


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("address=auto", "address= is about Ray: it goes with provider=ray"),
        ("resources=TPU:4", "resources= is about Ray"),
        ("provider=ray address=head", "address=ray://HOST:10001"),
        ("provider=ray address=http://head:8265", "address=ray://HOST:10001"),
        ("provider=ray address=-x:1", "address=ray://HOST:10001"),
        ("provider=ray resources=TPU", "resources=NAME:AMOUNT"),
        ("provider=ray resources=TPU:0", "resources=NAME:AMOUNT"),
        ("provider=ray resources=CPU:2", "write cpus=4 to ask for CPU"),
        ("provider=ray partition=gpu", "partition= is about Slurm"),
        ("provider=ray region=us-east-1", "region= is about machines that are rented"),
        ("provider=ray hosts=a", "provider=ray knows no hosts="),
        ("provider=ray spot=yes", "only rented machines are spot machines"),
    ],
)  # fmt: skip
def test_what_is_refused(line, says):
    with pytest.raises(OptionError) as raised:
        spec(line)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"address": 10001}, "address= cannot be 10001"),
        ({"resources": ["TPU"]}, "write {'TPU': 4}"),
        ({"resources": {"TPU": "many"}}, "resources=NAME:AMOUNT"),
        ({"waits": "yes"}, "write True or False"),
        ({"python": "/no/such/python"}, "there is no such program"),
    ],
)
def test_what_python_code_may_not_say(parts, says):
    with pytest.raises(OptionError) as raised:
        spec_for("default", provider=sky.Ray(**parts))
    assert says in str(raised.value)


def test_a_pool_that_is_up_has_the_options_that_it_was_made_with():
    up = spec("provider=ray address=ray://a:1")
    check_fits(up, parse("provider=ray address=ray://a:1", scopes=("pool",)).pool)
    with pytest.raises(PoolError, match="is up with address=ray://a:1"):
        check_fits(up, parse("provider=ray address=ray://b:1", scopes=("pool",)).pool)


def test_bundles_have_what_is_asked_for_by_rays_names():
    asked = spec("provider=ray accelerator=A100:8 cpus=4 memory=2 resources=fast:0.5")
    assert bundle(asked) == {
        "CPU": 4, "memory": 2 << 30, "GPU": 8, "accelerator_type:A100": 0.001, "fast": 0.5,
    }  # fmt: skip
    assert bundle(spec("provider=ray")) == {"CPU": 1}
    assert bundle(spec("provider=ray accelerator=A100 simulate")) == {"CPU": 1}


def test_a_dry_run_shows_the_group():
    first, group, actors = dry_run_lines(spec("provider=ray nodes=2 accelerator=L4"))
    assert "address=auto" in first
    assert group.count("'GPU': 1.0") == 2
    assert actors.strip() == "2 actors, one in each bundle, of 1 CPU, 1 GPU (L4)"


def test_the_keeper_has_a_folder_for_each_actor():
    program = keeper_program("p-1").replace("{number}", "3")
    assert program.startswith("set -- '/tmp/.skyward-p-1.3' 90\n")
    assert "{number}" not in program


def test_nodes_of_one_host_have_names_of_their_own():
    actors = [StartedActor("aaaaaaaa", "h1", ""), StartedActor("bbbbbbbb", "h2", "")]
    assert names_of(actors) == ["h1", "h2"]
    assert names_of([*actors, StartedActor("cccccccc", "h1", "")]) == [
        "h1-aaaaaa",
        "h2",
        "h1-cccccc",
    ]


# ── its answers ─────────────────────────────────────────────────────────────────────────

_NODES = [
    ClusterNode(
        "h1", {"CPU": 8.0, "node:10.0.0.1": 1.0, "memory": 1e9, "object_store_memory": 1e9}
    ),
    ClusterNode("h2", {"CPU": 8.0, "GPU": 4.0, "accelerator_type:A100": 1.0}),
]


def test_what_no_cluster_can_hold_is_said_with_what_it_has():
    asked = spec("provider=ray nodes=2 accelerator=A100:4")
    assert not why_infeasible(GroupState("PENDING", "NO_RESOURCES", _NODES), asked)
    said = why_infeasible(GroupState("PENDING", "INFEASIBLE", _NODES), asked)
    assert said.startswith(
        "2 nodes with 1 CPU, 4 GPU (A100) each are asked for, and 1 of the cluster's 2"
    )
    assert "(1 × 8 CPU; 1 × 8 CPU, 4 GPU (A100))" in said
    assert "sky.Ray(waits=True)" in said
    asked = spec("provider=ray accelerator=H100")
    said = why_infeasible(GroupState("PENDING", "INFEASIBLE", _NODES), asked)
    assert said.startswith(
        "a node with 1 CPU, 1 GPU (H100) is asked for, and none of the cluster's 2"
    )


def test_a_group_that_waits_says_for_what():
    asked = spec("provider=ray nodes=2 cpus=8")
    busy = spell_pending(GroupState("PENDING", "NO_RESOURCES", _NODES), asked)
    assert busy == "Ray waits for 2 nodes with 8 CPU each: they are in the cluster, and in use"
    few = spell_pending(GroupState("PENDING", "", _NODES), spec("provider=ray nodes=3"))
    assert "2 of 3 are in the cluster; an autoscaler may bring others" in few
    none = spell_pending(GroupState("PENDING", "INFEASIBLE", _NODES), spec("provider=ray nodes=9"))
    assert none.startswith("Ray waits for its autoscaler to bring 9 nodes with 1 CPU each")


_VERSIONS = """Version mismatch: The cluster was started with:
    Ray: 2.9.0
    Python: 3.10.12
This process on node 10.0.0.5 was started with:
    Ray: 2.60.0
    Python: 3.11.2
"""

# As Ray 2.60 says it where the head was too slow, or could not make the process's environment.
_ABORTED = """Initialization failure from server:
Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/ray/util/client/server/proxier.py", line 780, in Datapath
    raise RuntimeError(
RuntimeError: Proxy failed to Connect to backend! Check `ray_client_server.err` and `ray_client_server_23000.err` on the head node of the cluster for the relevant logs. By default these are located at /tmp/ray/session_latest/logs.
"""


@pytest.mark.parametrize(
    ("error", "text", "address", "says"),
    [
        ("ModuleNotFoundError", "No module named 'ray'", "auto", "pip install 'skyward-nb[ray]'"),
        ("RuntimeError", _VERSIONS, "auto", "the cluster runs Ray 2.9.0 and Python 3.10.12"),
        ("RuntimeError", _VERSIONS, "auto", "uv venv --python 3.10.12 ray-env"),
        ("ConnectionError", "Could not find any running Ray instance.", "auto", "no Ray runs on this machine"),
        ("ConnectionError", "ray client connection timeout", "ray://h:1", "no Ray answers at address=ray://h:1"),
        ("ConnectionAbortedError", _ABORTED, "ray://h:1", "did not come up: RuntimeError: Proxy failed to Connect to backend. Its"),
        ("ConnectionAbortedError", _ABORTED, "ray://h:1", "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S=120"),
        ("ValueError", "other words", "auto", "ValueError: other words"),
    ],
)  # fmt: skip
def test_why_ray_cannot_be_spoken_to_is_said_in_plain_words(error, text, address, says):
    assert says in spell_failure(HelperFailed(error, text), RayAccess(address=address))


def test_failures_are_told_apart_from_answers():
    text = msgspec.json.encode(HelperFailed("A", "b"))
    assert msgspec.json.decode(text)["type"] == "failed"
