"""A small transformer in JAX, its weights spread over meshes in every way: the same losses and weights."""

import pytest
from kernels import ready
from later import needs

pytestmark = needs("jax")

# Two ranks of two devices each, as two GPUs for each rank would be.
LINE = "accelerator=A100:4 ranks_per_node=2 simulate framework=jax"
MODEL = """%%sky_remote
import functools, jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
WORDS, WIDTH, HEADS, LENGTH, BATCH = 16, 8, 4, 6, 8

def weights():
    rng = np.random.default_rng(0)  # JAX would compile something for each shape
    make = lambda *shape: (0.3 * rng.normal(size=shape)).astype("float32")
    return {"embed": make(WORDS, WIDTH), "qkv": make(WIDTH, 3 * WIDTH), "out": make(WIDTH, WIDTH),
            "up": make(WIDTH, 4 * WIDTH), "down": make(4 * WIDTH, WIDTH), "head": make(WIDTH, WORDS)}

# Out of a layer along tp and into the next one, as Megatron does it; the other way along fsdp.
SPECS = {"embed": P("fsdp", "tp"), "qkv": P("fsdp", "tp"), "out": P("tp", "fsdp"),
         "up": P("fsdp", "tp"), "down": P("tp", "fsdp"), "head": P("fsdp", "tp")}

def loss_of(w, words):
    x = w["embed"][words[:, :-1]]
    q, k, v = jnp.split((x @ w["qkv"]).reshape(*x.shape[:2], HEADS, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    seen = jnp.tril(jnp.ones((x.shape[1],) * 2, bool))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -1e9)), v)
    x = x + mixed.reshape(x.shape) @ w["out"]
    x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
    said = jax.nn.log_softmax(x @ w["head"])
    return -jnp.take_along_axis(said, words[:, 1:, None], -1).mean()

def train(mesh):
    on = lambda spec: NamedSharding(mesh, spec)
    where = {name: on(spec) for name, spec in SPECS.items()}
    whole = weights()
    w = {name: jax.make_array_from_callback(a.shape, where[name], lambda i, a=a: a[i]) for name, a in whole.items()}

    @functools.partial(jax.jit, out_shardings=(where, on(P())), donate_argnums=0)
    def step(w, words):
        loss, slope = jax.value_and_grad(loss_of)(w, words)
        return jax.tree.map(lambda a, b: a - 0.5 * b, w, slope), loss

    losses, rng = [], np.random.default_rng(1)
    data = (rng.integers(0, WORDS, (20, BATCH, 1)) + np.arange(LENGTH)) % WORDS  # they count
    for batch in data:
        words = jax.make_array_from_callback(batch.shape, on(P("fsdp")), lambda i: batch[i])
        w, loss = step(w, words)
        losses.append(float(loss))
    return losses, w

def mesh_of(*sizes, devices=None):
    return jax.make_mesh(sizes, ("fsdp", "tp"), axis_types=(AxisType.Auto,) * 2, devices=devices)
"""


@pytest.fixture(scope="module")
def notebook():
    # Alone is one device of each rank's own, and so the same twice.
    alone = "%%sky_remote out=alone\ntrain(mesh_of(1, 1, devices=jax.local_devices()[:1]))"
    own = "import numpy as np\nlosses, weights = alone[0]"
    with ready(f"%sky up {LINE}", MODEL, alone, own) as running:
        yield running


def test_it_learns(notebook):
    assert notebook.run("losses[0] > losses[-1] + 0.1").result == "True"
    assert notebook.run("losses == alone[1][0]").result == "True"


@pytest.mark.parametrize(
    "sizes",
    ["2, 2", *(pytest.param(each, marks=pytest.mark.extensive) for each in ("4, 1", "1, 4"))],
)
def test_the_same_losses_and_weights_on_every_mesh(notebook, sizes):
    ran = notebook.run(
        f"%%sky_remote out=got\nl, w = train(mesh_of({sizes}))\n"
        "parts = {name: a.addressable_shards[0].data.shape for name, a in w.items()}\nl, w, parts"
    )
    assert ran.status == "ok", ran.traceback
    assert (
        notebook.run("all(np.abs(np.subtract(l, losses)).max() < 1e-4 for l, _, _ in got)").result
        == "True"
    )
    same = "max(float(np.abs(np.asarray(w[n]) - np.asarray(weights[n])).max()) for _, w, _ in got for n in weights) < 1e-4"
    assert notebook.run(same).result == "True", "weights came home whole"
    quarter = "all(4 * np.prod(p[n]) == weights[n].size for _, _, p in got for n in weights)"
    assert notebook.run(quarter).result == "True", "no device has more than its part"


def test_the_environment_of_several_devices(notebook):
    ran = notebook.run(
        "%%sky_remote\nimport os\n"
        "[os.environ[name] for name in ('JAX_LOCAL_DEVICE_COUNT', 'JAX_PLATFORMS')], jax.local_device_count(), jax.device_count()"
    )
    assert ran.result == "[0-1] (['2', 'cpu'], 2, 4)"


WHOLE = {
    "jnp.arange(8, dtype=jnp.bfloat16) * 1.5": "P(('fsdp', 'tp'))",
    "jnp.arange(8).reshape(4, 2) > 3": "P('tp', 'fsdp')",
    "jnp.arange(8.0).reshape(2, 4)": "P(None, 'tp')",
    "jnp.float32(7)": "P()",
}


@pytest.mark.parametrize("value", WHOLE)
def test_arrays_of_every_kind_come_home_whole(notebook, value):
    ran = notebook.run(
        f"%%sky_remote out=got\nwhole = {value}\n"
        f"spread = jax.device_put(whole, NamedSharding(mesh_of(2, 2), {WHOLE[value]}))\n"
        "[spread, {'same': spread}, np.asarray(whole)]"
    )
    assert ran.status == "ok", ran.traceback
    code = "[(type(s).__name__, s.dtype == w.dtype, bool((np.asarray(s) == w).all()), s is more['same']) for s, more, w in got]"
    assert notebook.run(code).result == str([("ArrayImpl", True, True, True)] * 2)


REFUSED = {
    "spread if rank == 0 else 5": "rank 1 sent home nothing of it",
    "spread if rank == 0 else [spread, spread + 1]": "ranks have different parts",
}


@pytest.mark.parametrize("value", REFUSED)
def test_parts_that_differ_are_an_error_and_no_hang(notebook, value):
    notebook.run(
        "%%sky_remote\nrank = jax.process_index()\n"
        "spread = jax.device_put(jnp.arange(8.0), NamedSharding(mesh_of(2, 2), P('fsdp')))"
    )
    ran = notebook.run(f"%%sky_remote out=got\n{value}", timeout=60)
    assert ran.error[0] == "PayloadError", ran.error
    assert REFUSED[value] in ran.traceback
    assert notebook.run("%%sky_remote\nrank").result == "[0] 0\n[1] 1", "the pool is as it was"


def test_a_spread_array_on_some_of_its_ranks(notebook):
    notebook.run(
        "%%sky_remote\nspread = jax.device_put(jnp.arange(8.0), NamedSharding(mesh_of(2, 2), P('fsdp')))"
    )
    ran = notebook.run("%%sky_remote ranks=0 out=got\nspread", timeout=60)
    assert "it is spread over 2 ranks, and this cell runs on 0 alone" in ran.traceback
    assert "addressable" in ran.traceback
