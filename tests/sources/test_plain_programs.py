"""What the guides do without a framework: data, places, output; and how they make pools."""

from __future__ import annotations

import pytest
from leaks import leaves_nothing
from terminals import said

import skyward_nb as sky
from skyward_nb.words.errors import OptionError


@pytest.fixture(scope="module")
def pool():
    with leaves_nothing():
        with sky.Compute(provider=sky.Local(), nodes=4) as pool:
            yield pool


# ── data ────────────────────────────────────────────────────────────────────────────────


def test_parts_of_a_data_set_add_up(pool, capfd):
    @sky.compute
    def process_data(full_dataset):
        info = sky.instance_info()
        local_data = sky.shard(full_dataset)
        print(f"Node {info.node}: processing {len(local_data)} items")
        return sum(local_data)

    assert sum(process_data(list(range(102))) @ pool) == sum(range(102))
    printed = said(capfd.readouterr().out)
    assert printed == {
        f"Node {node}: processing {25 + (node < 2)} items": [node] for node in range(4)
    }


def test_arrays_are_shuffled_alike_and_again_the_same(pool):
    np = pytest.importorskip("numpy")

    @sky.function
    def train(x_full, y_full):
        x, y = sky.shard(x_full, y_full, shuffle=True, seed=42)
        alone = sky.shard(x_full, shuffle=True, seed=42)
        return x, y, bool((alone == x).all())

    x = np.arange(40).reshape(20, 2)
    parts = train(x, x[:, 0] * 10) @ pool
    assert all((x[:, 0] * 10 == y).all() and same for x, y, same in parts)
    whole = np.concatenate([x for x, _, _ in parts])
    assert not (whole == x).all()
    assert sorted(whole[:, 0]) == list(range(0, 40, 2))


def test_parts_keep_their_type_stride_and_size(pool):
    np = pytest.importorskip("numpy")

    @sky.function
    def shares(items, array):
        return sky.shard(items), type(sky.shard(array)), len(sky.shard(items, drop_last=True))

    assert shares(list(range(10)), np.arange(10)) @ pool == [
        (list(range(rank, 10, 4)), np.ndarray, 2) for rank in range(4)
    ]


# ── places ──────────────────────────────────────────────────────────────────────────────


def test_the_fields_of_a_place(pool):
    @sky.function
    def distributed_task(data):
        info = sky.instance_info()
        print(f"Node {info.node} of {info.total_nodes}")
        coordinated = info.is_head and [each.node for each in info.peers]
        place = (info.node, info.total_nodes, info.is_head, bool(info.head_addr), info.accelerators)
        return place, info.head_port > 0, coordinated, data[info.node]

    assert distributed_task("abcd") @ pool == [
        ((node, 4, node == 0, True, 0), True, node == 0 and [0, 1, 2, 3], "abcd"[node])
        for node in range(4)
    ]


# ── output ──────────────────────────────────────────────────────────────────────────────


@sky.function
@sky.stdout(only="head")
def head_below():
    print("head below")


@sky.stdout(only="head")
@sky.function
def head_above():
    print("head above")


@sky.function
@sky.stdout(only=lambda info: info.node < 2)
def first_two():
    print("first two")


@sky.function
@sky.silent
def silent():
    import sys

    print("silent")
    print("silent too", file=sys.stderr)
    return 1


def test_decorators_of_output_in_either_order(pool, capfd):
    for call in (head_below, head_above, first_two, silent):
        call() @ pool
    out, err = capfd.readouterr()
    assert said(out) == {"head below": [0], "head above": [0], "first two": [0, 1]}
    assert "silent" not in err
    assert silent() @ pool == [1] * 4


# ── pools as they are made ──────────────────────────────────────────────────────────────

A100 = sky.Accelerator.NVIDIA.A100
TORCH = {"plugins": [sky.plugins.torch()]}


@pytest.mark.parametrize(
    ("arguments", "ranks", "frameworks", "packages"),
    [
        (
            {"nodes": 2, "accelerator": sky.NVIDIA.A100, "image": sky.Image(pip=["torch"])},
            2,
            (),
            ("torch",),
        ),
        (
            {
                "nodes": 2,
                "accelerator": "A100",
                "image": sky.Image(pip=["keras>=3.2", "jax[cuda12]"], env={"KERAS_BACKEND": "jax"}),
            },
            2,
            (),
            ("keras>=3.2", "jax[cuda12]"),
        ),
        (
            {
                "image": sky.Image(
                    pip=["keras>=3.2", "tensorflow"], env={"KERAS_BACKEND": "tensorflow"}
                )
            },
            1,
            (),
            ("keras>=3.2", "tensorflow"),
        ),
        ({"nodes": 4, "accelerator": "H100", "pip": ["jax[cuda12]"]}, 4, (), ("jax[cuda12]",)),
        (
            {
                "nodes": 2,
                "accelerator": "A100",
                "pip": ["transformers", "datasets", "torch", "accelerate"],
            },
            2,
            (),
            ("transformers", "datasets", "torch", "accelerate"),
        ),
        (
            {"accelerator": A100(mig="3g.40gb"), "image": sky.Image(pip=["torch"])},
            2,
            (),
            ("torch",),
        ),
        ({"nodes": 4, "accelerator": sky.accelerators.A100(), **TORCH}, 4, ("torch",), ()),
        (
            {"nodes": 2, "plugins": [sky.plugins.jax(), sky.plugins.keras(backend="jax")]},
            2,
            ("jax", "keras:jax"),
            (),
        ),
        (
            {"plugins": [sky.plugins.torch(), sky.plugins.huggingface(token="hf_none")]},
            1,
            ("torch", "huggingface"),
            (),
        ),
        ({"nodes": 4, "accelerator": "L4:4", "cpus": "8+"}, 16, (), ()),
    ],
)
def test_every_printed_pool_is_one_of_aws(arguments, ranks, frameworks, packages):
    """As printed, `provider=` included; nothing is asked of AWS before a pool starts."""
    spec = sky.ComputePool(provider=sky.AWS(region="us-east-1"), **arguments).spec
    assert (spec.provider, spec.world_size) == ("aws", ranks)
    assert spec.framework == frameworks
    assert spec.image.pip == packages


@pytest.mark.parametrize("accelerator", ["A100", "H100"])
@pytest.mark.parametrize(
    ("profile", "workers", "memory"), [("3g.40gb", 2, 40), ("2g.20gb", 3, 20), ("1g.10gb", 7, 10)]
)
def test_the_table_of_mig_profiles(accelerator, profile, workers, memory):
    gpu = getattr(sky.Accelerator.NVIDIA, accelerator)
    spec = sky.ComputePool(accelerator=gpu(mig=profile), simulate=True).spec
    assert spec.world_size == gpu.mig_profiles[profile] == workers
    assert profile.endswith(f".{memory}gb") and memory * workers <= gpu.memory


@pytest.mark.parametrize(
    "plugin",
    [
        sky.plugins.torch(),
        sky.plugins.jax(),
        sky.plugins.tensorflow(),
        sky.plugins.keras(backend="jax"),
        sky.plugins.huggingface(),
    ],
)
def test_frameworks_that_join_ranks_are_refused_where_nodes_stand_alone(plugin):
    with pytest.raises(OptionError, match="joins all ranks of a pool"):
        sky.Compute(nodes=2, options=sky.Options(cluster=False), plugins=[plugin])
