"""One model of JAX, spread in every way over real ranks, trains as it does on one device."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest
from later import needs
from leaks import leaves_nothing
from pools import start, values
from tiers import few

import skyward_nb as sky
from skyward_nb.plugins.jax_plugin import JaxPlugin
from skyward_nb.runtime.process_group import entered
from skyward_nb.words.info import InstanceInfo

pytestmark = needs("jax")

SETUP = """
import functools, re, warnings
import jax, jax.numpy as jnp, numpy as np
import skyward_nb as sky
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

rank = jax.process_index()
data = np.random.default_rng(0)
x, y = (data.normal(size=(32, width)).astype("float32") for width in (8, 4))

def weights(seed=0):
    "Made with another seed on each rank but the first."
    make = np.random.default_rng(seed).normal
    return {"up": {"w": make(size=(8, 32)).astype("f") / 3, "b": np.zeros(32, "f")},
            "down": [make(size=(32, 4)).astype("f") / 6, np.zeros(4, "f")]}

def loss_of(w, x, y):
    hidden = jnp.tanh(x @ w["up"]["w"] + w["up"]["b"])
    return jnp.mean((hidden @ w["down"][0] + w["down"][1] - y) ** 2)

def arranged(axes):
    pairs = [each.split(":") for each in axes.split(",")]
    sizes, names = tuple(int(size) for _, size in pairs), tuple(name for name, _ in pairs)
    devices = None if np.prod(sizes) > 1 else jax.local_devices()
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(sizes), devices=devices)

def batch(mesh):
    "All rows, each device with its own."
    sharding = NamedSharding(mesh, P(tuple(axis for axis in ("dp", "fsdp") if axis in mesh.shape)))
    return [jax.make_array_from_callback(a.shape, sharding, a.__getitem__) for a in (x, y)]

def stepped(gradients, w, *batch):
    loss, slopes = gradients(w, *batch)
    return loss, jax.tree.map(lambda a, b: a - 0.3 * b, w, slopes)

def train(axes, gradients=jax.value_and_grad(loss_of), seed=0):
    mesh = arranged(axes)
    w, losses = sky.parallelize(weights(seed), mesh=mesh), []
    step, rows = jax.jit(functools.partial(stepped, gradients)), batch(mesh)
    for _ in range(4):
        loss, w = step(w, *rows)
        losses.append(float(loss))
    return losses, w

def apart(axes, **options):
    "Largest differences of losses and of weights from those of one device; how much it learnt."
    losses, w = trained[axes] = train(axes, seed=rank, **options)
    whole = sky.full_state(w)
    assert bool(whole) == sky.is_head()
    far = max(np.abs(a - b).max() for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(alone[1]))) if whole else 0.0
    return float(np.abs(np.subtract(losses, alone[0])).max()), float(far), losses[0] - losses[-1]

def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

alone, trained = train("fsdp:1,tp:1"), {}
None
"""

MODULES = """
import optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, seed, rate=0.0):
        rngs = nnx.Rngs(seed)
        self.up, self.down = nnx.Linear(8, 32, rngs=rngs), nnx.Linear(32, 4, rngs=rngs)
        self.norm, self.drop = nnx.BatchNorm(32, rngs=rngs), nnx.Dropout(rate, rngs=rngs)
    def __call__(self, x):
        return self.down(self.drop(jnp.tanh(self.norm(self.up(x)))))

def error_of(net, x, y):
    return jnp.mean((net(x) - y) ** 2)

def fit(axes, gradients, seed=0, rate=0.0, steps=2):
    "With axes of None: as it is, on one device."
    net = Net(seed, rate)
    rows = x, y
    if axes is not None:
        mesh = arranged(axes)
        assert sky.parallelize(net, mesh=mesh) is net
        rows = batch(mesh)
    optimizer = nnx.Optimizer(net, optax.sgd(0.1), wrt=nnx.Param)
    @nnx.jit
    def step(net, optimizer, *rows):
        loss, slopes = gradients(net, *rows)
        optimizer.update(net, slopes)
        return loss
    return [float(step(net, optimizer, *rows)) for _ in range(steps)], net
None
"""


FLAX = [name for name in ("flax.nnx", "optax") if importlib.util.find_spec(name.partition(".")[0])]


@pytest.fixture(scope="module")
def pool():
    """Two ranks of two devices each, whose forge has imported once what both of them would."""
    with leaves_nothing(), pytest.MonkeyPatch.context() as patch:
        before = JaxPlugin.preload
        patch.setattr(JaxPlugin, "preload", lambda *given: (*before(*given), *FLAX))
        made = start(framework=("jax",), env={"JAX_NUM_CPU_DEVICES": "2"})
        try:
            values(made, SETUP)
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def with_modules(pool):
    pytest.importorskip("flax")
    values(pool, MODULES)
    return pool


def agree(found):
    for loss, weight, learnt in found:
        assert loss < 1e-5
        assert weight < 1e-5
        assert learnt > 0.1


@pytest.mark.parametrize(
    "axes",
    few(
        1,
        [
            "fsdp:4,tp:1",
            "fsdp:1,tp:4",
            "fsdp:2,tp:2",
            pytest.param("dp:2,tp:2", marks=pytest.mark.extensive),
            pytest.param("tp:2,fsdp:2", marks=pytest.mark.extensive),
        ],
    ),
)
def test_a_pytree_trains_the_same_on_every_mesh(pool, axes):
    agree(values(pool, f"apart({axes!r})"))


def test_each_device_has_its_part_also_after_training(pool):
    shapes = (
        "if 'fsdp:2,tp:2' not in trained: apart('fsdp:2,tp:2')\nw = trained['fsdp:2,tp:2'][1]\n"
        "[a.addressable_shards[0].data.shape for a in (w['up']['w'], w['down'][0])]"
    )
    assert values(pool, shapes) == [[(4, 16), (16, 2)]] * 2


@pytest.mark.parametrize(
    "axes", ["fsdp:2,tp:2", pytest.param("dp:2,fsdp:2", marks=pytest.mark.extensive)]
)
def test_accumulated_gradients_are_those_of_the_large_batch(pool, axes):
    agree(
        values(
            pool, f"apart({axes!r}, gradients=sky.accumulate(loss_of, 4, mesh=arranged({axes!r})))"
        )
    )


def test_micro_batches_are_not_synchronised_one_by_one(pool):
    """As many all-reduces for four of them as for one, and none in the loop."""
    count = (
        "mesh = arranged('fsdp:4')\nw = sky.parallelize(weights(), mesh=mesh)\n"
        "[jax.jit(sky.accumulate(loss_of, n, mesh=mesh)).lower(w, *batch(mesh)).as_text().count('all_reduce')"
        " for n in (1, 4)]"
    )
    assert values(pool, count) == [[5, 5]] * 2, "one for the loss, one for each array"


@pytest.mark.parametrize(
    "option", ["reduce_dtype", pytest.param("param_dtype", marks=pytest.mark.extensive)]
)
def test_gradients_can_be_averaged_in_bf16(pool, option):
    made = f"sky.accumulate(loss_of, 2, mesh=arranged('fsdp:4'), {option}='bf16')"
    losses, _, learnt = values(pool, f"apart('fsdp:4', gradients={made})")[0]
    assert 1e-6 < losses < 0.05
    assert learnt > 0.1


def test_weights_in_bf16_have_gradients_in_bf16(pool):
    """On CPUs XLA would end the process where it is to add those up."""
    body = (
        "mesh = arranged('fsdp:4')\nsmall = jax.tree.map(lambda a: a.astype(jnp.bfloat16), weights())\n"
        "_, slopes = jax.jit(sky.accumulate(loss_of, 2, mesh=mesh))(sky.parallelize(small, mesh=mesh), *batch(mesh))\n"
        "{str(slope.dtype) for slope in jax.tree.leaves(slopes)}"
    )
    assert values(pool, body) == [{"bfloat16"}] * 2


@pytest.mark.extensive
def test_a_module_of_nnx_trains_the_same(with_modules):
    body = (
        "given, _ = fit('fsdp:2,tp:2', nnx.value_and_grad(error_of), seed=rank)\n"
        "own = fit(None, nnx.value_and_grad(error_of))[0] if rank == 0 else None\n"
        "given, own"
    )
    (given, own), (other, _) = values(with_modules, body)
    assert given == other
    assert given == pytest.approx(own, abs=1e-5)
    assert given[0] - given[-1] > 0.1


@pytest.mark.extensive
def test_a_module_of_nnx_whose_state_goes_on_from_one_micro_batch_to_the_next(with_modules):
    body = (
        "mesh = arranged('fsdp:2,tp:2')\n"
        "losses, net = fit('fsdp:2,tp:2', sky.accumulate(error_of, 4, mesh=mesh), rate=0.5, steps=1)\n"
        "state = sky.full_state(net)\n"
        "back = Net(5, 0.5); before = back.norm.mean[...].sum()\n"
        "nnx.update(back, state) if state else None; back.up(x)\n"
        "losses, int(net.drop.rngs.count[...]), sorted(map(str, state)), "
        "not state or bool((back.up.kernel[...] == state['up']['kernel'][...]).all()), "
        "not state or bool(before != back.norm.mean[...].sum())"
    )
    head, *others = values(with_modules, body)
    (loss,), count, names, same, gathered = head
    assert 0.1 < loss < 10
    assert count == 4, "of one step with four micro-batches"
    assert names == ["down", "drop", "norm", "up"]
    assert same and gathered
    assert all(each[2] == [] for each in others)


def test_what_a_model_says_of_its_own_arrays_is_followed(with_modules):
    body = (
        "with nnx.use_eager_sharding(False):\n"
        "    made = nnx.Linear(8, 32, rngs=nnx.Rngs(0), kernel_init=nnx.with_partitioning("
        "nnx.initializers.lecun_normal(), ('tp', None)))\n"
        "    sky.parallelize(made, mesh=arranged('fsdp:2,tp:2'))\n"
        "str(made.kernel[...].sharding.spec), made.kernel[...].addressable_shards[0].data.shape"
    )
    assert values(with_modules, body)[0][1] == (4, 32)


def test_what_cannot_be_divided_is_named(pool):
    body = (
        "with warnings.catch_warnings(record=True) as told:\n    warnings.simplefilter('always')\n"
        "    w = sky.parallelize({'odd': np.ones((5, 7))}, mesh=arranged('fsdp:4'))\n"
        "[str(each.message) for each in told], told[0].filename, w['odd'].is_fully_replicated"
    )
    for (said,), file, whole in values(pool, body):
        assert "along fsdp=4 each device holds all of odd (5, 7)" in said
        assert "<cell" in file
        assert whole


REFUSED = {
    "sky.parallelize({'a': 'text', 'b': []})": "TypeError: sky.parallelize takes a torch.nn.Module, a",
    "sky.parallelize(weights(), mesh=arranged('rows:4'))": "and the mesh has rows: make the pool with mesh=",
    "sky.parallelize(weights(), mesh='fsdp:4')": "TypeError: sky.parallelize: mesh= takes a jax.sharding.Mesh",
    "sky.parallelize(weights(), {'upp': 'colwise'})": "no layer or array is named 'upp'; did you mean 'up'",
    "sky.parallelize(weights(), reduce_dtype='bf16')": "ValueError: sky.parallelize: in JAX a function makes",
    "sky.parallelize(sky.parallelize(weights()))": "down.0 is spread over ranks already; make it anew",
    "sky.parallelize({'w': np.ones((rank + 1, 4))})": "ranks have different models",
    "sky.accumulate(loss_of, 2)(sky.parallelize(weights()), x, y)": "a part of the batch is this rank's alone",
    "sky.accumulate(loss_of, 3)(weights(), *batch(sky.mesh()))": "32 rows cannot be divided into every=3 micro-",
    "sky.accumulate(loss_of, 2, reduce_dtype='f8')": "'f8' is not one of bf16, fp16, fp32",
    "sky.accumulate(loss_of, 2, total=3)": "TypeError: sky.accumulate: total= is not for a function of JAX",
}  # fmt: skip


def test_what_is_refused_on_all_ranks(pool):
    calls = ", ".join(f"{code!r}: raised(lambda: {code})" for code in REFUSED)
    for said in values(pool, f"{{{calls}}}"):
        for code, words in REFUSED.items():
            assert words in (said[code] or ""), (code, said[code])


# ── without a pool ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def outside(monkeypatch):
    monkeypatch.delenv("COMPUTE_POOL", raising=False)
    assert not entered


def test_without_a_pool_arrays_stay_as_they_are(outside):
    import jax.numpy as jnp

    model = {"w": jnp.ones((2, 3)), "steps": 4}
    assert sky.parallelize(model) is model
    assert sky.parallelize(model, {"w": "colwise"}) is model
    with pytest.raises(ValueError, match="no layer or array is named 'v'"):
        sky.parallelize(model, {"v": "colwise"})
    assert sky.full_state(model)["w"].tolist() == [[1.0] * 3] * 2
    assert sky.full_state(model)["steps"] == 4


@pytest.mark.parametrize(("has", "wants"), [("torch", "jax"), ("jax", "torch")])
def test_a_model_on_a_pool_with_another_framework(outside, monkeypatch, has, wants):
    class Linear(dict):
        """What is taken for a module of torch where that is wanted."""

    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Linear))
    model = Linear() if wants == "torch" else {"w": pytest.importorskip("jax.numpy").ones(2)}
    monkeypatch.setitem(entered, has, object())
    monkeypatch.setattr(
        "skyward_nb.runtime.parallelize.instance_info", lambda: InstanceInfo(world_size=4)
    )
    says = f"is one of {wants}, and the pool has framework={has}: make another one with framework={wants}"
    with pytest.raises(RuntimeError, match=says):
        sky.parallelize(model)


def test_random_keys_stay_keys(outside):
    import jax

    whole = sky.full_state({"key": jax.random.key(3)})
    assert jax.random.key_data(whole["key"]).tolist() == [0, 3]


def test_without_a_pool_gradients_are_made_here_and_compiled_once(outside):
    import jax.numpy as jnp

    calls = []

    def loss(w, x):
        calls.append(x.shape)
        return jnp.mean((x * w) ** 2), jnp.max(x)

    makes = sky.accumulate(loss, every=3, has_aux=True)
    for _ in range(2):
        (value, aux), slope = makes(jnp.float32(2.0), jnp.arange(6.0))
    assert (float(value), float(aux)) == (pytest.approx(4 * 55 / 6), 3.0)
    assert float(slope) == pytest.approx(4 * 55 / 6)
    assert set(calls) == {(2,)}
    assert len(calls) == 2, "once for the shapes, and once to be compiled"
