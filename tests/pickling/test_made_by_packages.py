"""Functions and types that packages make of what a notebook defines: decorated, compiled, with own derivatives."""

import dataclasses
import functools
import pickle
import subprocess
import sys
import types
import typing
import warnings
from pathlib import Path

import pytest
from later import needs

from skyward_nb.compat import tensorflow_private
from skyward_nb.pickling import definitions, payload
from skyward_nb.words.errors import PayloadError

# ── types without a class ───────────────────────────────────────────────────────────────


def test_types_that_only_have_a_name_in_the_notebook(ns, rank):
    exec(
        "from typing import NewType, ParamSpec, TypeVarTuple\n"
        "User = NewType('User', int)\nP = ParamSpec('P')\nTs = TypeVarTuple('Ts')\n"
        "def f(user: User): return user",
        ns,
    )
    for name in ("User", "P", "Ts"):
        back = rank.take(name, ns[name])
        assert type(back) is type(ns[name])
        assert (back.__name__, back.__module__) == (name, "__main__")
    assert rank.take("User", ns["User"]).__supertype__ is int
    assert rank.take("f", ns["f"]).__annotations__["user"].__name__ == "User"


def test_types_that_a_package_has_stay_the_packages(ns, rank, monkeypatch):
    module = types.ModuleType("has_types")
    module.User = typing.NewType("User", int)
    module.User.__module__ = "has_types"
    monkeypatch.setitem(sys.modules, "has_types", module)
    assert rank.take("User", module.User) is module.User


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of a later Python")
def test_types_that_a_statement_names(ns, rank):
    exec("type Pair[T] = tuple[T, T]\ntype Text = str", ns)
    pair = rank.take("Pair", ns["Pair"])
    assert str(pair[int]) == "Pair[int]"
    assert [each.__name__ for each in pair.__type_params__] == ["T"]
    assert rank.take("Text", ns["Text"]).__value__ is str


def test_typed_dictionaries_of_typed_dictionaries(ns, rank):
    exec(
        "from typing import TypedDict\nclass A(TypedDict, total=False):\n    a: int\n"
        "class B(A):\n    b: str\nC = TypedDict('C', {'c': int})",
        ns,
    )
    back = rank.take("B", ns["B"])
    assert typing.is_typeddict(back) and back(a=1, b="x") == {"a": 1, "b": "x"}
    assert (back.__required_keys__, back.__optional_keys__) == ({"b"}, {"a"})
    assert back.__annotations__ == {"a": int, "b": str}
    assert rank.take("C", ns["C"]).__annotations__ == {"c": int}


# ── functions ───────────────────────────────────────────────────────────────────────────

PACKAGE = """
import functools, threading
lock, calls, LIMIT = threading.Lock(), [], 3

def counted(f):
    @functools.wraps(f)
    def wrapper(*args):
        with lock:
            calls.append(f.__name__)
        return f(*args)
    return wrapper

def doubled(f):
    return lambda *args: f(*args) * 2 * LIMIT

class Maker:
    @classmethod
    def make(cls): return lock
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package whose decorator has a lock."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "has_lock.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(folder))
    module = __import__("has_lock")
    yield module
    del sys.modules["has_lock"]


def test_what_an_installed_decorator_makes_uses_its_module_there(package, ns, rank):
    exec("import has_lock\n@has_lock.counted\ndef f(x): return x + 1", ns)
    back = rank.take("f", ns["f"])
    assert back is not ns["f"]
    assert back(1) == 2
    assert package.calls == ["f"], "the module's own list, and no copy of it"
    assert back.__wrapped__.__globals__ is rank.namespace


def test_a_function_that_uses_nothing_of_its_module_goes_without_it(package, ns, rank):
    bundle = payload.pack("f", package.doubled(abs), to_ranks=True)
    assert not definitions.uses_its_module(package.doubled(abs))
    assert b"names_of" not in b"".join(map(bytes, bundle.parts))
    assert rank.take("f", package.doubled(abs))(-1) == 6


def test_what_a_projects_decorator_makes_goes_by_value(package, monkeypatch):
    monkeypatch.setattr(package, "__file__", str(Path("/home/a/project/has_lock.py")))
    assert not definitions.uses_its_module(package.counted(abs))


def test_methods_of_classes_go_by_their_names(package, rank):
    back = rank.take("make", package.Maker.make)
    assert back() is package.lock, (
        "its code would bring a copy of the lock along, which there is none of"
    )


def test_methods_that_have_no_name_or_are_the_notebooks(package, ns, rank, monkeypatch):
    exec("def own(cls): return 'own'", ns)
    monkeypatch.setattr(package.Maker, "make", classmethod(ns["own"]))
    assert rank.take("make", package.Maker.make)() == "own"
    bound = types.MethodType(functools.partial(pow, 2), 5)
    assert rank.take("bound", bound)() == 32


# ── JAX ─────────────────────────────────────────────────────────────────────────────────

OF_JAX = {
    "checkpoint": "@jax.checkpoint\ndef f(x): return x * x",
    "custom_vjp": "@jax.custom_vjp\ndef f(x): return x * x\n"
    "f.defvjp(lambda x: (f(x), x), lambda x, g: (2 * x * g,))",
    "custom_jvp": "@jax.custom_jvp\ndef f(x): return x * x\n"
    "@f.defjvp\ndef f_jvp(at, along): return at[0] * at[0], 2 * at[0] * along[0]",
    "jit": "@jax.jit\ndef f(x): return x * x",
    "jit of a custom_vjp": "@jax.jit\n@jax.custom_vjp\ndef f(x): return x * x\n"
    "f.__wrapped__.defvjp(lambda x: (x * x, x), lambda x, g: (2 * x * g,))",
}


@needs("jax")
@pytest.mark.parametrize("how", OF_JAX)
def test_functions_of_jax_have_their_derivatives_there(how, ns, rank):
    import jax

    exec("import jax\n" + OF_JAX[how], ns)
    rank.namespace["f"] = back = rank.take("f", ns["f"])
    assert back is not ns["f"]
    assert jax.grad(back)(3.0) == 6.0


@needs("jax")
def test_what_jax_has_compiled_is_known_and_lowered_there(ns, rank):
    import jax

    exec(
        "import functools, jax\n@functools.partial(jax.jit, static_argnames='n')\n"
        "def times(x, n=2):\n    'So many times.'\n    return x * n",
        ns,
    )
    back = rank.take("times", ns["times"])
    assert back is not ns["times"]
    assert (back.__name__, back.__doc__, back.__wrapped__(2)) == ("times", "So many times.", 4)
    assert back(2.0, n=3) == 6.0
    assert back.lower(2.0, n=3).compile()(2.0) == 6.0
    assert back.eval_shape(2.0).shape == ()
    unnamed = rank.take("unnamed", jax.jit(functools.partial(pow, 2)))
    assert unnamed(3) == 8
    for name in ("relu", "silu", "logsumexp"):
        assert rank.take(name, getattr(jax.nn, name)) is getattr(jax.nn, name)


OF_A_PROCESS = {
    "jax.devices()[0]": "jax.devices",
    "jax.make_mesh((1,), ('x',))": "jax.devices",
    "jax.sharding.SingleDeviceSharding(jax.devices()[0])": "jax.devices",
    "jax.NamedSharding(jax.make_mesh((1,), ('x',)), jax.P('x'))": "jax.devices",
    "jax.vjp(jax.numpy.sin, 1.0)[1]": "send the function",
    "jax.jit(abs).lower(1.0)": "send the function",
    "jax.jit(abs).lower(1.0).compile()": "send the function",
}


@needs("jax")
def test_shardings_without_devices_travel(rank):
    import jax

    spread = jax.NamedSharding(jax.sharding.AbstractMesh((2,), ("x",)), jax.P("x"))
    assert rank.take("spread", spread) == spread
    assert rank.take("of", jax.typeof(jax.numpy.ones(2))).shape == (2,)


@needs("jax")
@pytest.mark.parametrize("text", OF_A_PROCESS)
def test_what_jax_has_in_its_process_says_what_to_send(text):
    import jax

    with pytest.raises(PayloadError, match=OF_A_PROCESS[text]):
        payload.pack("x", eval(text, {"jax": jax}))


# ── torch ───────────────────────────────────────────────────────────────────────────────


def compiled_there(ns, rank, decorators):
    """A function that has these, as it is on a rank: it compiled once there, and never in the notebook."""
    import torch

    exec(
        "import torch, functools\ntold = []\n"
        "def backend(graph, inputs):\n    told.append(len(inputs))\n    return graph.forward\n"
        "def noted(f):\n    @functools.wraps(f)\n    def inner(*args): return f(*args)\n    return inner\n"
        f"{decorators}\ndef f(x): return x + 1",
        ns,
    )
    rank.namespace["told"] = []
    back = rank.take("f", ns["f"])
    assert torch.equal(back(torch.ones(2)), torch.full((2,), 2.0))
    assert (rank.namespace["told"], ns["told"]) == ([1], [])


@needs("torch")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_functions_that_torch_compiles_are_compiled_there_with_their_settings(ns, rank):
    import torch

    compiled_there(ns, rank, "@torch.compile(backend=backend, fullgraph=True)")
    before = payload.pack("f", ns["f"], to_ranks=True).digest
    ns["f"](torch.ones(2))
    assert payload.pack("f", ns["f"], to_ranks=True).digest == before, "it is not sent anew"


@needs("torch")
@pytest.mark.parametrize(
    "above", ["torch.no_grad()", "noted", "torch.profiler.record_function('f')"]
)
def test_what_wraps_a_compiled_function_wraps_it_there(above, ns, rank):
    compiled_there(ns, rank, f"@{above}\n@torch.compile(backend=backend)")


@needs("torch")
@pytest.mark.filterwarnings("error", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("way", ["script", "trace", "export", "function"])
def test_models_of_torchscript_and_of_export(way, ns, rank):
    import torch

    model, x = torch.nn.Linear(2, 1), torch.ones(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            "script": lambda: torch.jit.script(model),
            "trace": lambda: torch.jit.trace(model, x),
            "export": lambda: torch.export.export(model, (x,)),
            "function": lambda: torch.jit.trace(lambda x: x * 2, x),
        }[way]()
    back = rank.take("made", made)
    whole = {"export": lambda each: each.module()}.get(way, lambda each: each)
    assert torch.equal(whole(back)(x), whole(made)(x))
    first, second = (payload.pack("made", made, to_ranks=True).digest for _ in range(2))
    assert first == second, "equal ones are equal bytes"


@needs("torch", "jax", "ml_dtypes")
def test_limits_of_types(rank):
    import jax.numpy as jnp
    import numpy as np
    import torch

    for limits in (
        torch.finfo(torch.bfloat16),
        torch.iinfo(torch.int8),
        np.finfo(np.float64),
        np.iinfo(np.int16),
        jnp.finfo(jnp.float32),
        jnp.finfo(jnp.bfloat16),
    ):
        back = rank.take("limits", limits)
        assert (back.dtype, back.max, back.min) == (limits.dtype, limits.max, limits.min)


@needs("torch")
def test_what_torch_has_in_its_process_says_what_to_send():
    import torch

    loader = torch.utils.data.DataLoader([1, 2])
    with pytest.raises(PayloadError, match="send the loader"):
        payload.pack("batches", iter(loader))


class SummaryWriter:
    """As that of TensorBoard, which is imported with TensorFlow."""

    file_writer: object = None


@needs("torch")
def test_a_writer_stays_with_its_process_but_for_one_that_is_closed(monkeypatch):
    monkeypatch.setattr(SummaryWriter, "__module__", "torch.utils.tensorboard.writer")
    monkeypatch.setitem(
        sys.modules,
        "torch.utils.tensorboard.writer",
        types.SimpleNamespace(SummaryWriter=SummaryWriter),
    )
    writer = SummaryWriter()
    assert payload.pack("writer", writer)
    writer.file_writer = sys.stdout
    with pytest.raises(PayloadError, match="make it in the cell that writes"):
        payload.pack("writer", writer)


@needs("tqdm")
def test_a_bar_stays_with_its_process_but_for_one_that_draws_nothing(rank):
    from tqdm import tqdm

    with pytest.raises(PayloadError, match="make it in the cell that goes on with it"):
        payload.pack("bar", tqdm(range(3)))
    assert list(rank.take("bar", tqdm(range(3), disable=True))) == [0, 1, 2]


# ── TensorFlow ──────────────────────────────────────────────────────────────────────────

PIPELINES = {
    "steps": "data.Dataset.from_tensor_slices([1, 2, 3, 4]).map(lambda x: x * 2).batch(3).prefetch(1)",
    "names": "data.Dataset.from_tensor_slices({'a': [1, 2], 'b': [3, 4]}).cache()",
    "a table": "data.Dataset.from_tensor_slices([0, 1]).map(table.lookup)",
    "ragged": "data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]]))",
    "a length that is told": "data.Dataset.range(9).filter(lambda x: x > 3).apply("
    "data.experimental.assert_cardinality(5))",
}


@pytest.fixture
def tf(ns):
    """TensorFlow under its name in the notebook, with a table."""
    module = pytest.importorskip("tensorflow")
    words = module.lookup.KeyValueTensorInitializer([0, 1], [5, 6])
    ns.update(tf=module, data=module.data, table=module.lookup.StaticHashTable(words, -1))
    return module


def elements(dataset):
    return [str(each) for each in dataset]


@needs("tensorflow")
@pytest.mark.parametrize("how", PIPELINES)
def test_a_pipeline_of_data_is_gone_through_there(how, tf, ns, rank):
    dataset = eval(PIPELINES[how], ns)
    back = rank.take("dataset", dataset)
    assert elements(back) == elements(dataset) == elements(back)
    assert back.element_spec == dataset.element_spec
    assert int(back.cardinality()) == int(dataset.cardinality())


@needs("tensorflow")
def test_a_pipeline_has_its_options_what_keras_notes_of_it_and_variables_as_they_are(tf, rank):
    options, added = tf.data.Options(), tf.Variable(3, dtype="int64")
    options.deterministic = True
    dataset = tf.data.Dataset.range(2).map(lambda x: x + added).with_options(options)
    dataset.class_names = ["cat", "dog"]
    added.assign(5)
    back = rank.take("dataset", dataset)
    assert [int(each) for each in back] == [5, 6]
    assert back.options().deterministic
    assert back.class_names == ["cat", "dog"]


@needs("tensorflow")
def test_a_pipeline_that_is_there_is_known_by_its_bytes(tf):
    dataset = tf.data.Dataset.range(9).map(lambda x: x * 2).shuffle(3).batch(2)
    assert payload.pack("x", dataset).digest == payload.pack("x", dataset).digest


@needs("tensorflow")
def test_a_pipeline_that_is_bound_to_its_process_says_why(tf):
    data, number = tf.data.Dataset, tf.TensorSpec((), "int32")
    bound = {
        "calls Python": data.from_generator(lambda: iter([1]), output_signature=number),
        "from_generator, py_function": data.range(2).map(
            lambda x: tf.py_function(lambda x: x, [x], "int64")
        ),
        "halfway through its data; send the data set": iter(data.range(2)),
    }
    for why, value in bound.items():
        with pytest.raises(PayloadError, match=why):
            payload.pack("x", value)


@needs("tensorflow")
def test_a_pipeline_of_more_than_tensorflow_can_write_down_says_so(tf, monkeypatch):
    monkeypatch.setattr(tensorflow_private, "graph_of", lambda dataset: tf.compat.v1.GraphDef())
    with pytest.raises(PayloadError, match="it has more than 2 GB"):
        payload.pack("x", tf.data.Dataset.range(2))


# ── classes ─────────────────────────────────────────────────────────────────────────────


def test_fields_of_a_data_class_are_fields_there_and_of_what_derives_from_it(ns, rank):
    exec(
        "from dataclasses import dataclass, field, KW_ONLY\n@dataclass\nclass Base:\n    rate: float = 0.1\n"
        "    parts: list = field(default_factory=list)\n    _: KW_ONLY\n    last: int = 1",
        ns,
    )
    base = rank.take("Base", ns["Base"])
    assert dataclasses.asdict(base()) == {"rate": 0.1, "parts": [], "last": 1}

    @dataclasses.dataclass
    class More(base):
        more: int = 3

    assert dataclasses.asdict(More()) == {"rate": 0.1, "parts": [], "last": 1, "more": 3}
    assert rank.take("marks", [dataclasses.MISSING, dataclasses.KW_ONLY])[0] is dataclasses.MISSING


def test_a_base_is_not_told_again_of_a_subclass(ns, rank):
    exec(
        "class Plug:\n    every = []\n    def __init_subclass__(cls, key, **more):\n"
        "        Plug.every.append(cls.__name__)\n        cls.key = key\n"
        "class One(Plug, key=1): pass\nclass Two(One, key=2): pass",
        ns,
    )
    two = rank.take("Two", ns["Two"])
    assert (two.key, two.__mro__[2].every) == (2, ["One", "Two"])
    with pytest.raises(TypeError, match="key"):
        type("Three", (two,), {})


TREES = {
    "register_pytree_node_class": "@jax.tree_util.register_pytree_node_class\nclass Pair:\n"
    "    def __init__(self, a, b): self.a, self.b = a, b\n"
    "    def tree_flatten(self): return (self.a, self.b), None\n"
    "    @classmethod\n    def tree_unflatten(cls, _, parts): return cls(*parts)\n",
    "register_dataclass": "@jax.tree_util.register_dataclass\n@dataclasses.dataclass\nclass Pair:\n"
    "    a: float\n    b: float\n",
    "flax.struct.dataclass": "import flax.struct\n@flax.struct.dataclass\nclass Pair:\n    a: float\n    b: float\n",
    "flax.struct.PyTreeNode": "import flax.struct\nclass Pair(flax.struct.PyTreeNode):\n    a: float\n    b: float\n",
}
OTHER_PROCESS = """
import pickle, sys, jax
from skyward_nb.pickling import definitions, home_namespace, payload
space = {"__name__": "__main__"}
home_namespace.set_home(space)
label, definition, value = pickle.loads(sys.stdin.buffer.read())
definitions.keep(label, payload.rebuild(memoryview(definition)))
pair = payload.rebuild(memoryview(value))
print(jax.tree.leaves(pair), jax.jit(lambda pair: pair)(pair).b)
"""


@needs("jax", "flax")
@pytest.mark.parametrize("how", TREES)
def test_what_jax_takes_apart_in_a_notebook_it_takes_apart_on_a_rank(how, ns):
    exec("import jax, dataclasses\n" + TREES[how] + "pair = Pair(1.0, 2.0)", ns)
    kind = ns["Pair"]
    value = payload.pack("pair", ns["pair"], to_ranks=True)
    definition = payload.pack("Pair", kind, to_ranks=True, roots=[kind])
    whole = (b"".join(map(bytes, each.parts)) for each in (definition, value))
    said = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        input=pickle.dumps((definitions.label_of(kind), *whole)),
        capture_output=True,
        check=True,
    )
    assert said.stdout.decode().split() == ["[1.0,", "2.0]", "2.0"]


@needs("torch", "accelerate")
def test_a_module_that_was_prepared_for_a_process_is_itself_elsewhere(ns, rank):
    exec(
        "import torch\nfrom accelerate import Accelerator\nfrom accelerate.state import AcceleratorState\n"
        "AcceleratorState._reset_state(True)\n"
        "class Net(torch.nn.Linear):\n    def forward(self, x): return super().forward(x)\n"
        "plain = Net(2, 1)\nnet = Accelerator(cpu=True, mixed_precision='bf16').prepare(plain)\n"
        "AcceleratorState._reset_state(True)\n",
        ns,
    )
    assert vars(ns["net"])["_is_accelerate_prepared"]
    net = rank.take("net", ns["net"])
    assert vars(net).keys().isdisjoint({"_is_accelerate_prepared", "_original_forward", "forward"})
    assert net.weight.tolist() == ns["net"].weight.tolist()
    assert "forward" in vars(ns["net"]), "the notebook's own stays prepared"


@needs("torch", "accelerate")
def test_who_would_wait_for_a_group_that_nobody_forms_is_told(ns, rank, monkeypatch):
    exec("from accelerate import PartialState\nstate = PartialState(cpu=True)", ns)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"PartialState looks for the other ranks, .* forms it"):
        rank.take("state", ns["state"])
