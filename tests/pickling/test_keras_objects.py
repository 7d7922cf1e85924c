"""Models, layers and losses of Keras with classes and functions of the notebook."""

import concurrent.futures
import linecache
import os
import sys

import pytest
from later import needs

from skyward_nb.pickling import payload
from skyward_nb.words.errors import PayloadError

os.environ.setdefault("KERAS_BACKEND", "torch")

pytestmark = [
    needs("keras", "torch"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`build.*was called on layer:UserWarning"),
]
BEGIN = "import keras, numpy as np\nones = np.ones((1, 2), 'float32')\n"
PLAIN = (
    "class Scaled(keras.layers.Layer):\n    def __init__(self, by=2):\n        super().__init__()\n"
    "        self.by = by\n    def call(self, x): return x * self.by\n"
)
LAYER = "class Twice(keras.layers.Layer):\n    def call(self, x): return x * 2\n"
OF = "of = keras.Sequential([keras.layers.Input((2,)), {}])\n"
REGISTERED = "@keras.saving.register_keras_serializable(package='mine')\n"

PREDICT = {
    "a layer": LAYER + OF.format("keras.layers.Dense(1), Twice()"),
    "a registered layer": REGISTERED + LAYER + OF.format("Twice()"),
    "a layer in a layer": LAYER
    + OF.format("keras.layers.TimeDistributed(Twice())").replace("(2,)", "(2, 1)")
    + "ones = ones[..., None]\n",
    "a layer that takes no more than its own": PLAIN + OF.format("Scaled(5)"),
    "a frozen layer of somebody else's": LAYER
    + OF.format("keras.layers.Dense(1, trainable=False), Twice()"),
    "an activation": "def cube(x): return x ** 3\n"
    + OF.format("keras.layers.Dense(1, activation=cube)"),
    "an initializer": "def sevens(shape, dtype=None): return keras.ops.full(shape, 7.0)\n"
    + OF.format("keras.layers.Dense(1, kernel_initializer=sevens)"),
    "a model": LAYER + "class Of(keras.Model):\n"
    "    def __init__(self):\n        super().__init__()\n        self.last = keras.layers.Dense(1)\n"
    "    def call(self, x): return self.last(Twice()(x))\n"
    "of = Of()\nof(ones)\n",
    "a registered layer that takes no more than its own": REGISTERED
    + PLAIN
    + OF.format("Scaled(5)"),
    "functions of one name": "def of_a(k):\n    def act(x): return x * k\n    return act\n"
    + OF.format(
        "keras.layers.Dense(2, activation=of_a(2)), keras.layers.Dense(1, activation=of_a(50))"
    ),
    "a function with the name of one of Keras's": "def relu(x): return x * -9\n"
    + OF.format("keras.layers.Dense(2, activation=relu), keras.layers.Dense(1, activation='relu')"),
    "a layer with the name of one of Keras's": "class Dense(keras.layers.Layer):\n    def call(self, x): return x * -9\n"
    + OF.format("keras.layers.Dense(2), Dense()"),
    "a layer that is made in a way of its own": "class Half(keras.layers.Layer):\n"
    "    def __init__(self, named): super().__init__(name=named)\n    def call(self, x): return x / 2\n"
    "    def get_config(self): return super().get_config()\n"
    "    @classmethod\n    def from_config(cls, config): return cls(config.pop('name'))\n"
    + OF.format("Half('half')"),
    "layers of two classes of a name": LAYER + "First = Twice\n" + LAYER + OF.format("Twice()"),
}


@pytest.fixture
def keras_here():
    """Keras; what tests register is forgotten."""
    import keras

    before = dict(keras.saving.get_custom_objects())
    yield keras
    keras.saving.get_custom_objects().clear()
    keras.saving.get_custom_objects().update(before)


@pytest.mark.parametrize("what", PREDICT)
def test_what_the_notebook_defines_goes_with_a_model(what, keras_here, ns, rank):
    exec(BEGIN + PREDICT[what], ns)
    model, ones = ns["of"], ns["ones"]
    keras_here.saving.get_custom_objects().clear()  # ranks know none of it
    rank.namespace["keras"] = keras_here
    back = rank.take("of", model)
    assert back is not model
    assert (
        keras_here.ops.convert_to_numpy(back(ones)) == keras_here.ops.convert_to_numpy(model(ones))
    ).all()


def test_losses_metrics_and_schedules_go_with_a_compiled_model(keras_here, ns, rank):
    exec(
        BEGIN + OF.format("keras.layers.Dense(1)") + "def loss(y, p): return abs(y - p)\n"
        "class Slow(keras.optimizers.schedules.LearningRateSchedule):\n"
        "    def __call__(self, step): return 0.5\n    def get_config(self): return {}\n"
        "def far(y, p): return abs(y - p) > 1\n"
        "of.compile(keras.optimizers.SGD(Slow()), loss, metrics=[far])\n",
        ns,
    )
    back = rank.take("of", ns["of"])
    ones = ns["ones"]
    assert set(back.fit(ones, ones[:, :1], verbose=0).history) == {"loss", "far"}
    assert float(back.optimizer.learning_rate) == 0.5


def test_what_is_registered_is_registered_there(keras_here, ns, rank, tmp_path):
    exec(BEGIN + REGISTERED + LAYER + OF.format("Twice()"), ns)
    keras_here.saving.get_custom_objects().clear()
    back = rank.take("of", ns["of"])
    back.save(tmp_path / "of.keras")
    assert type(keras_here.saving.load_model(tmp_path / "of.keras").layers[-1]) is type(
        back.layers[-1]
    )
    assert keras_here.saving.get_registered_name(type(back.layers[-1])) == "mine>Twice"


def test_two_models_share_nothing(keras_here, ns):
    exec(BEGIN + LAYER + OF.format("Twice()") + "first = of\n" + OF.format("Twice()"), ns)
    first, second = (payload.pack(name, ns[name], to_ranks=True) for name in ("first", "of"))
    assert not first.objects().keys() & second.objects().keys()
    assert first.digest == payload.pack("first", ns["first"], to_ranks=True).digest


def test_a_layer_stays_frozen(keras_here, ns, rank):
    exec(BEGIN + PLAIN + OF.format("keras.layers.Dense(1), Scaled(5)"), ns)
    for layer in ns["of"].layers:
        layer.trainable = False
    back = rank.take("of", ns["of"])
    assert [each.trainable for each in back.layers] == [False, False]


def test_names_types_and_what_is_frozen_stay_also_where_a_class_does_not_take_them(
    keras_here, ns, rank
):
    exec(
        BEGIN
        + PLAIN
        + "class Both(keras.layers.Layer):\n    def __init__(self):\n        super().__init__()\n"
        "        self.first, self.last = keras.layers.Dense(2), keras.layers.Dense(2)\n"
        "    def call(self, x): return self.last(self.first(x))\n"
        "keras.config.set_dtype_policy('mixed_bfloat16')\n"
        + OF.format("Scaled(5), Both(), Both()")
        + "keras.config.set_dtype_policy('float32')\nof.layers[1].first.trainable = False\n",
        ns,
    )
    back, model = rank.take("of", ns["of"]), ns["of"]
    assert len(back.trainable_weights) == len(model.trainable_weights) == 6
    assert not back.layers[1].first.trainable
    for here, there in zip(model.layers, back.layers, strict=True):
        assert (there.name, there.dtype_policy.name) == (here.name, here.dtype_policy.name)
    assert back.layers[1].last.compute_dtype == "bfloat16"
    assert keras_here.config.dtype_policy().name == "float32"


def test_a_loss_of_the_notebook(keras_here, ns, rank):
    exec(
        BEGIN + "class Far(keras.losses.Loss):\n    def __init__(self): super().__init__()\n"
        "    def call(self, y, p): return abs(y - p)\n"
        + OF.format("keras.layers.Dense(1)")
        + "of.compile('sgd', Far())",
        ns,
    )
    assert type(rank.take("of", ns["of"]).loss).__name__ == "Far"


GENERATES = """
import dataclasses
@dataclasses.dataclass
class Sizes:
    latent: int = 2

class Sampling(keras.layers.Layer):
    def __init__(self, seeds, **kwargs):
        super().__init__(**kwargs)
        self.seeds = seeds
    def call(self, x): return x + 0 * keras.random.normal(keras.ops.shape(x), seed=self.seeds)

class Pair(keras.Model):
    def __init__(self, encoder, decoder, sizes, beta=0.5, *, parts=(), **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder, self.sizes, self.beta, self.parts = encoder, decoder, sizes, beta, parts
        self.sampling = Sampling(keras.random.SeedGenerator(1))
        self.loss_tracker = keras.metrics.Mean(name="loss")
    def call(self, x): return self.decoder(self.sampling(self.encoder(x))) * self.beta
    def compile(self, first, second, loss_of, metrics=None, rate=1.0):
        super().compile(metrics=metrics)
        self.of_compile = keras.metrics.Mean("of_compile")
        self.first, self.second, self.loss_of, self.rate = first, second, loss_of, rate

def far(y, p): return keras.ops.mean(keras.ops.abs(y - p))
encoder = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
decoder = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])
encoder.layers[0].trainable = False
pair = Pair(encoder, decoder, Sizes(), beta=3, parts=[keras.layers.Dense(1)], name="the_pair")
pair.compile(keras.optimizers.Adam(0.25), keras.optimizers.SGD(0.125), far, [keras.metrics.Mean("m")], rate=2.0)
pair(ones)
pair.first.build(decoder.trainable_variables)
pair.first.iterations.assign(7)
both = pair, encoder
"""


def test_arguments_that_keras_has_not_kept_go_along_where_they_are_attributes(
    keras_here, ns, rank, recwarn
):
    exec(BEGIN + GENERATES, ns)
    wanted = said(ns["pair"], ns)
    pair, encoder = rank.take("both", ns["both"])
    assert said(pair, ns) == pytest.approx(wanted)
    assert pair.encoder is encoder and not encoder.layers[0].trainable
    assert (pair.sizes.latent, pair.beta, pair.name) == (2, 3, "the_pair")
    assert type(pair.parts[0]).__name__ == "Dense"
    assert [float(each.learning_rate) for each in (pair.first, pair.second)] == [0.25, 0.125]
    assert (pair.loss_of.__name__, pair.rate) == ("far", 2.0)
    # Two optimizers go on with what they trained, as far as they had begun.
    for each in (pair.first, pair.second):
        each.build(pair.decoder.trainable_variables)
    assert (int(pair.first.iterations), int(pair.second.iterations)) == (7, 0)
    assert [each.name for each in pair._compile_metrics._user_metrics] == ["m"]
    assert not [each for each in recwarn if "compile()" in str(each.message)]
    assert vars(pair).keys().isdisjoint({"compile_from_config"})
    assert vars(ns["pair"]).keys().isdisjoint({"get_compile_config"})
    assert ns["pair"].compiled and ns["pair"].sampling._auto_config is None


def test_a_model_whose_arguments_keras_has_forgotten_says_so(keras_here, ns):
    exec(
        BEGIN
        + "class Net(keras.Model):\n    def __init__(self, rate=0.5):\n        super().__init__()\n"
        "        self.drop = keras.layers.Dropout(rate)\n    def call(self, x): return self.drop(x)\n"
        "net = Net(rate=0.1)",
        ns,
    )
    with pytest.raises(PayloadError, match=r"Net has none that says its rate: give it one, keep"):
        payload.pack("net", ns["net"])
    exec("Net.get_config = lambda self: {'rate': self.drop.rate}", ns)
    assert payload.pack("net", ns["net"])


def test_an_argument_that_is_kept_otherwise_is_no_other_model(keras_here, ns, rank):
    exec(
        BEGIN
        + "class Net(keras.Model):\n    def __init__(self, size):\n        super().__init__()\n"
        "        self.size = size * 2\n    def call(self, x): return x * self.size\nnet = Net(3)",
        ns,
    )
    with pytest.raises(ValueError, match=r"Net keeps its size otherwise than it is given it: give"):
        rank.take("net", ns["net"])


NET = """
class Net(keras.Model):
    def __init__(self{takes}):
        super().__init__({gives})
        self.kept = keras.layers.Dense(1)
        {keeps}
    def call(self, x): return self.kept(x)
    {more}
"""


def run(ns, source):
    """Run source that is to be had, as a cell's is."""
    source, name = BEGIN + source, "<cell>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), ns)


def net_of(ns, made, **parts):
    """A model of a class whose source is to be had, as a cell's is."""
    filled = {"takes": "", "gives": "", "keeps": "pass", "more": "", **parts}
    run(ns, NET.format(**filled))
    exec(f"encoder = keras.Sequential([keras.layers.Dense(2)])\n{made}\nnet(ones)", ns)
    return ns["net"]


def said(net, ns):
    return [float(each) for each in ns["keras"].ops.convert_to_numpy(net(ns["ones"])).ravel()]


@pytest.mark.parametrize(
    ("takes", "gives", "keeps", "made", "what"),
    [
        (", **hyper", "", "self.rate = hyper.get('rate', 0.1)", "Net(rate=5.0)", r"\*\*hyper"),
        (", *parts", "", "self.parts = list(parts)", "Net(encoder)", r"\*parts"),
        (", encoder, **kwargs", "**kwargs", "self.encoder = kwargs", "Net(encoder)", r"\*\*kwargs"),
        (", size", "", "self.layer_size = size", "Net(3)", "size"),
    ],
)
def test_what_a_class_keeps_under_no_name_is_told_of(
    takes, gives, keeps, made, what, keras_here, ns
):
    net_of(ns, f"net = {made}", takes=takes, gives=gives, keeps=keeps)
    with pytest.raises(PayloadError, match=f"Net has none that says its {what}: give it one"):
        payload.pack("net", ns["net"])


def test_what_is_passed_on_and_lists_in_lists_are_no_hindrance(keras_here, ns, rank):
    net_of(
        ns,
        "net = Net([[encoder], {'last': [encoder]}], (1, [2]), name='mine')",
        takes=", parts, sizes, *args, **kwargs",
        gives="*args, **kwargs",
        keeps="self.parts, self.sizes = parts, sizes",
    )
    back = rank.take("net", ns["net"])
    assert (back.name, back.sizes) == ("mine", (1, [2]))
    assert back.parts[0][0] is back.parts[1]["last"][0]


@pytest.mark.parametrize(
    "gives",
    [
        "**kwargs); kwargs.setdefault('name', 'a'",
        "name=kwargs.pop('name', 'x'), **kwargs",
        "); keras.Model.__init__(self, **kwargs",
        "**kwargs)\n        if kwargs: print(end=''",
    ],
)
def test_usual_ways_to_pass_arguments_on_are_known(gives, keras_here, ns, rank):
    keeps = "self.encoder = encoder"
    net = net_of(ns, "net = Net(encoder)", takes=", encoder, **kwargs", gives=gives, keeps=keeps)
    assert said(rank.take("net", net), ns) == said(net, ns)


def test_a_class_of_a_class_has_the_arguments_of_its_parent(keras_here, ns, rank):
    made = "class Own(Net): pass\nnet = Own(encoder, 2)"
    keeps = "self.encoder, self.size = encoder, size"
    net_of(ns, made, takes=", encoder, size=1", keeps=keeps)
    back = rank.take("net", ns["net"])
    assert (back.size, said(back, ns)) == (2, said(ns["net"], ns))


def test_networks_of_a_class_of_the_notebook_travel_as_keras_makes_them(keras_here, ns, rank):
    for takes in ("pass", "def __init__(self, inputs, outputs, name=None, **kwargs):\n"
                  "        super().__init__(inputs, outputs, name=name, **kwargs)"):  # fmt: skip
        exec(
            f"{BEGIN}class Net(keras.Model):\n    {takes}\n"
            "inputs = keras.Input((2,))\nnet = Net(inputs, keras.layers.Dense(1)(inputs))\n"
            "net.compile('adam', 'mse')\nnet.fit(ones, ones[:, :1], verbose=0)",
            ns,
        )
        back = rank.take("net", ns["net"])
        assert said(back, ns) == said(ns["net"], ns)
        assert int(back.optimizer.iterations) == 1


DERIVED = {
    "a layer of Keras's": (
        "class Of(keras.layers.Dense):\n    def __init__(self, units, scale=1.0, **kwargs):\n"
        "        super().__init__(units, **kwargs); self.scale = scale\n"
        "    def call(self, x): return super().call(x) * self.scale\n"
        "it = Of(1, scale=10.0)",
        "it.scale",
    ),
    "an optimizer": (
        "class Of(keras.optimizers.SGD):\n    def __init__(self, learning_rate=0.1, boost=1.0, **kwargs):\n"
        "        super().__init__(learning_rate, **kwargs); self._boost = boost\n"
        "it = Of(0.5, boost=5.0)",
        "(it._boost, float(it.learning_rate))",
    ),
    "a metric": (
        "class Of(keras.metrics.Mean):\n    def __init__(self, boost=1.0, **kwargs):\n"
        "        super().__init__(**kwargs); self.boost = boost\n"
        "it = Of(boost=5.0, name='mine')",
        "(it.boost, it.name)",
    ),
    "a loss, whose argument is in no attribute of its name": (
        "class Of(keras.losses.Loss):\n    def __init__(self, factor=0.1, name='of'):\n"
        "        super().__init__(name=name); self.parts = [factor]\n"
        "    def call(self, y, p): return (y - p) ** 2 * self.parts[0]\n"
        "it = Of(100.0)",
        "(it.parts, it.name, it.reduction)",
    ),
    "an initializer": (
        "class Of(keras.initializers.Initializer):\n    def __init__(self, value=1.0): self.value = value\n"
        "    def __call__(self, shape, dtype=None): return keras.ops.full(shape, self.value)\n"
        "it = keras.layers.Dense(1, kernel_initializer=Of(5.0))",
        "it.kernel_initializer.value",
    ),
    "a regularizer": (
        "class Of(keras.regularizers.Regularizer):\n    def __init__(self, strength): self.strength = strength\n"
        "    def __call__(self, x): return self.strength * keras.ops.sum(x)\n"
        "it = keras.layers.Dense(1, kernel_regularizer=Of(5.0))",
        "it.kernel_regularizer.strength",
    ),
    "a schedule": (
        "class Of(keras.optimizers.schedules.LearningRateSchedule):\n"
        "    def __init__(self, first): self.rate = first\n"
        "    def __call__(self, step): return self.rate\n"
        "it = keras.optimizers.SGD(Of(0.25))",
        "it._learning_rate.rate",
    ),
    "a network with an argument of its own": (
        "class Of(keras.Model):\n    def __init__(self, *args, steps=1, **kwargs):\n"
        "        super().__init__(*args, **kwargs); self.steps = steps\n"
        "inputs = keras.Input((2,))\nit = Of(inputs, keras.layers.Dense(1)(inputs), steps=4)",
        "it.steps",
    ),
    "a model of a model that passes its arguments on": (
        "class Base(keras.Model):\n    def __init__(self, rate=0.5, **kwargs):\n"
        "        super().__init__(**kwargs); self.rate = rate\n"
        "class Of(Base):\n    def __init__(self, encoder, **kwargs):\n"
        "        super().__init__(**kwargs); self.encoder = encoder\n"
        "    def call(self, x): return self.encoder(x) * self.rate\n"
        "it = Of(keras.layers.Dense(1), rate=100.0)",
        "it.rate",
    ),
    "a model of a model that gives it one argument": (
        "class Base(keras.Model):\n    def __init__(self, rate=0.5, size=1, **kwargs):\n"
        "        super().__init__(**kwargs); self.rate, self.size = rate, size\n"
        "class Of(Base):\n    def __init__(self, encoder, **kwargs):\n"
        "        super().__init__(rate=7.0, **kwargs); self.encoder = encoder\n"
        "    def call(self, x): return self.encoder(x) * self.rate\n"
        "it = Of(keras.layers.Dense(1), size=3)",
        "(it.rate, it.size)",
    ),
    "a model within one that makes it": (
        "class Part(keras.Model):\n    def __init__(self, units):\n"
        "        super().__init__(); self.last = keras.layers.Dense(units)\n"
        "    def call(self, x): return self.last(x)\n"
        "class Of(keras.Model):\n    def __init__(self):\n        super().__init__(); self.part = Part(3)\n"
        "    def call(self, x): return self.part(x)\n"
        "it = Of()\nit(ones)",
        "it.part.last.units",
    ),
    "a layer of Keras's of which it fixes something": (
        "class Of(keras.layers.Dense):\n    def __init__(self, units, **kwargs):\n"
        "        super().__init__(units, activation='relu', **kwargs)\n"
        "it = Of(3)",
        "(it.units, it.activation.__name__)",
    ),
    "an argument by a name that Keras has for losses": (
        "class Of(keras.layers.Layer):\n    def __init__(self, by, reduction='mean'):\n"
        "        super().__init__(); self.by, self.reduction = by, reduction\n"
        "it = Of(abs, reduction='sum')",
        "it.reduction",
    ),
    "a class of a class that says what it was given": (
        "class Base(keras.layers.Layer):\n    def __init__(self, units): super().__init__(); self.units = units\n"
        "    def get_config(self): return {'units': self.units}\n"
        "class Of(Base):\n    def __init__(self, units, rate=0.5): super().__init__(units); self.rate = rate\n"
        "it = Of(3, rate=7.0)",
        "(it.units, it.rate)",
    ),
    "an argument that was set since": (
        "class Of(keras.layers.Layer):\n    def __init__(self, rate=1.0): super().__init__(); self.rate = rate\n"
        "it = Of()\nit.rate = 5.0",
        "it.rate",
    ),
    "an attribute that is made of the argument of its name": (
        "class Of(keras.layers.Layer):\n    def __init__(self, size, of='a'):\n"
        "        super().__init__(); self.size, self.of = size * 2, np.array([of, of])\n"
        "it = Of(3)",
        "(it.size, list(it.of))",
    ),
    "what a metric has summed up": (
        "class Of(keras.metrics.Mean):\n    def __init__(self, by): super().__init__(); self.by = by\n"
        "it = Of(2)\nit.update_state([1.0, 2.0])",
        "float(it.result())",
    ),
    "a loss of Keras's that is a function": (
        "it = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])\n"
        "it.compile('sgd', keras.losses.mean_squared_error, [keras.metrics.mean_absolute_error])",
        "it.loss.__name__",
    ),
    "an optimizer that a compile of its own makes": (
        "class Of(keras.Model):\n    def __init__(self): super().__init__(); self.last = keras.layers.Dense(1)\n"
        "    def call(self, x): return self.last(x)\n"
        "    def compile(self, rate=0.1):\n"
        "        super().compile(optimizer=keras.optimizers.Adam(rate), loss='mse'); self.rate = rate\n"
        "it = Of()\nit.compile(0.25)\nit.fit(ones, ones[:, :1], epochs=3, verbose=0)",
        "(int(it.optimizer.iterations), float(it.optimizer.learning_rate))",
    ),
    "weights of parts that a model calls in methods of its own": (
        "class Of(keras.Model):\n    def __init__(self):\n        super().__init__()\n"
        "        self.e = keras.Sequential([keras.layers.Dense(3)]); self.d = keras.layers.Dense(2)\n"
        "    def encode(self, x): return self.e(x)\n    def decode(self, x): return self.d(x)\n"
        "it = Of()\nit.decode(it.encode(ones))",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "weights of a model that says it is built": (
        "class Of(keras.Model):\n    def __init__(self):\n        super().__init__()\n"
        "        self.e = keras.Sequential([keras.layers.Dense(3)]); self.built = True\n"
        "it = Of()\nit.e(ones)",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "weights of a model of two inputs": (
        "class Of(keras.Model):\n    def __init__(self):\n        super().__init__()\n"
        "        self.d = keras.layers.Dense(3); self.e = keras.layers.Dense(3)\n"
        "    def call(self, a, b): return self.d(a) + self.e(b)\n"
        "it = Of()\nit(ones, ones)",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "weights of a layer of layers": (
        "class Of(keras.layers.Layer):\n"
        "    def __init__(self): super().__init__(); self.a = keras.layers.Dense(3)\n"
        "    def call(self, x): return self.a(x)\n"
        "it = Of()\nit(ones)",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "weights of a layer that builds another once": (
        "class Of(keras.layers.Layer):\n"
        "    def __init__(self): super().__init__(); self.a = keras.layers.Dense(3)\n"
        "    def build(self, shape): self.a.build(shape)\n"
        "    def call(self, x): return self.a(x)\n"
        "it = Of()\nit({'x': ones}['x'])",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "tuples and dictionaries": (
        "class Of(keras.layers.Layer):\n    def __init__(self, size, of):\n"
        "        super().__init__(); self.pair = size if isinstance(size, tuple) else (size, size)\n"
        "        self.of = of\n"
        "it = keras.Sequential([keras.layers.Input((2,)), Of((2, 3), {0: 1.0, 1: 5.0})])",
        "(it.layers[0].pair, it.layers[0].of[1])",
    ),
    "what was set since, and what was made before": (
        "class Of(keras.layers.Layer):\n    def __init__(self, rate=0.1, cap=1.0, size=(1, 2)):\n"
        "        super().__init__(); self.rate, self.drop = rate, keras.layers.Dropout(rate)\n"
        "        self.cap, self.size = cap, size\n"
        "it = Of(0.2, 2.0, (1, 1))\nit.rate, it.cap, it.size = 0.5, None, (3, 4)",
        "(it.rate, it.drop.rate, it.cap, tuple(it.size))",
    ),
    "what a property sets": (
        "class Of(keras.layers.Layer):\n"
        "    def __init__(self, rate=0.1): super().__init__(); self.kept = rate\n"
        "    @property\n    def rate(self): return self.kept\n"
        "    @rate.setter\n    def rate(self, rate): self.kept = rate\n"
        "it = Of(0.2)\nit.rate = 0.5",
        "it.rate",
    ),
    "a type that it fixes": (
        "class Of(keras.layers.Layer):\n    def __init__(self, by=2, **kwargs):\n"
        "        super().__init__(dtype='float64', name=f'by_{by}', **kwargs); self.by = by\n"
        "it = keras.Sequential([keras.layers.Input((2,)), Of(3)])",
        "(it.layers[0].dtype, it.layers[0].name, it.layers[0].by)",
    ),
    "what it fixes by its place": (
        "class Of(keras.layers.Conv2D):\n    def __init__(self, filters, **kwargs):\n"
        "        super().__init__(filters, 3, padding='same', **kwargs)\n"
        "it = Of(4)",
        "(it.filters, it.kernel_size, it.padding)",
    ),
    "what it fixes of a class by its name": (
        "class Of(keras.layers.Dense):\n    def __init__(self, **kwargs):\n"
        "        keras.layers.Dense.__init__(self, 3, **kwargs)\n"
        "it = Of(activation='relu')",
        "(it.units, it.activation.__name__)",
    ),
    "what it fixes of a class of its own": (
        "class Base(keras.Model):\n    def __init__(self, units, by=1):\n"
        "        super().__init__(); self.units, self.by = units, by\n"
        "class Of(Base):\n    def __init__(self, **kwargs): super().__init__(5, **kwargs)\n"
        "it = Of(by=2)",
        "(it.units, it.by)",
    ),
    "what it would rather have": (
        "class Of(keras.layers.Conv2D):\n    def __init__(self, filters, **kwargs):\n"
        "        kwargs.setdefault('padding', 'same')\n        super().__init__(filters, 3, **kwargs)\n"
        "it = (Of(4), Of(4, padding='valid'))",
        "[(each.filters, each.padding) for each in it]",
    ),
    "a Dense that takes no more than its units": (
        "class Of(keras.layers.Dense):\n    def __init__(self, units): super().__init__(units)\n"
        "it = Of(3)",
        "it.units",
    ),
    "the rate of an optimizer that was set since": (
        "class Of(keras.optimizers.Adam):\n"
        "    def __init__(self, warm=3): super().__init__(1e-3); self.warm = warm\n"
        "it = Of()\nit.learning_rate = 0.25",
        "(float(it.learning_rate), it.warm)",
    ),
    "an argument by the name of what networks have": (
        "class Of(keras.layers.Layer):\n    def __init__(self, layers=2): super().__init__(); self.of = layers\n"
        "it = keras.Sequential([keras.layers.Input((2,)), Of(3)])",
        "it.layers[0].of",
    ),
    "a type that it takes of what is passed on": (
        "class Of(keras.layers.Layer):\n    def __init__(self, units, **kwargs):\n"
        "        super().__init__(dtype=kwargs.pop('dtype', None), **kwargs); self.units = units\n"
        "it = keras.Sequential([keras.layers.Input((2,)), Of(3, dtype='float64')])",
        "(it.layers[0].dtype, it.layers[0].units)",
    ),
    "a part that it writes and reads itself": (
        "class Part(keras.layers.Layer):\n    def __init__(self, units, **kwargs):\n"
        "        super().__init__(**kwargs); self.units, self.last = units, keras.layers.Dense(units)\n"
        "    def build(self, shape): self.last.build(shape)\n    def call(self, x): return self.last(x)\n"
        "    def get_config(self): return {**super().get_config(), 'units': self.units}\n"
        "class Of(keras.Model):\n"
        "    def __init__(self, part, **kwargs): super().__init__(**kwargs); self.part = part\n"
        "    def call(self, x): return self.part(x)\n"
        "    def get_config(self):\n        part = keras.saving.serialize_keras_object(self.part)\n"
        "        return {**super().get_config(), 'part': part}\n"
        "    @classmethod\n    def from_config(cls, config):\n"
        "        return cls(Part.from_config(config.pop('part')['config']), **config)\n"
        "it = Of(Part(3))\nit(ones)",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "a property that cannot tell yet": (
        "class Of(keras.layers.Layer):\n"
        "    def __init__(self, rate=0.1): super().__init__(); self.first = rate\n"
        "    @property\n    def rate(self): raise RuntimeError('not ready')\n"
        "    @rate.setter\n    def rate(self, rate): self.first = rate\n"
        "it = Of(0.2)",
        "it.first",
    ),
    "a layer within one of Keras's, that Keras does not build by a call": (
        "class Block(keras.layers.Layer):\n    def __init__(self, units, **kwargs):\n"
        "        super().__init__(**kwargs); self.units = units; self.part = keras.layers.Dense(units)\n"
        "    def call(self, x): return self.part(x)\n"
        "    def get_config(self): return {**super().get_config(), 'units': self.units}\n"
        "class Of(Block): pass\n"
        "it = keras.layers.TimeDistributed(Of(3))\nit(ones[None])",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "a layer whose build sets what it was not given": (
        "class Of(keras.layers.MultiHeadAttention):\n"
        "    def __init__(self, num_heads): super().__init__(num_heads, 4)\n"
        "it = Of(2)\nit(ones[None], ones[None])",
        "[each.tolist() for each in it.get_weights()]",
    ),
    "a layer that has learnt its bounds": (
        "class Of(keras.layers.Discretization):\n"
        "    def __init__(self, num_bins): super().__init__(num_bins=num_bins)\n"
        "it = Of(3)\nit.adapt(np.arange(8.0).reshape(4, 2))",
        "[float(each) for each in it.bin_boundaries]",
    ),
    "what is looked up in a dict that is not its own": (
        "settings = {'activation': 'tanh'}\nclass Of(keras.layers.Dense):\n"
        "    def __init__(self, units, more=None, **kwargs):\n"
        "        super().__init__(units, activation=settings.get('activation'), use_bias=(more or {}).get('use_bias', True), **kwargs)\n"
        "        self.more = more\n"
        "it = Of(3, {'use_bias': False})",
        "(it.activation.__name__, it.use_bias)",
    ),
    "a default for an argument of its base": (
        "class Of(keras.layers.Dense):\n    def __init__(self, units, **kwargs):\n"
        "        super().__init__(units, activation=kwargs.pop('activation', 'relu'), **kwargs)\n"
        "it = Of(3), Of(3, activation='tanh')",
        "[each.activation.__name__ for each in it]",
    ),
    "a norm that build gave its axes": (
        "class Of(keras.layers.LayerNormalization):\n    def __init__(self, epsilon=1e-6): super().__init__(epsilon=epsilon)\n"
        "it = Of(1e-3)\nit(ones)",
        "(it.epsilon, list(it.axis))",
    ),
    "attention over an axis of its own": (
        "class Of(keras.layers.MultiHeadAttention):\n    def __init__(self, heads):\n"
        "        super().__init__(heads, 2, attention_axes=(-2,)); self.heads = heads\n"
        "it = Of(1)\nx = keras.ops.ones((1, 3, 4))\nit(x, x)",
        "it.heads",
    ),
    "a norm of an axis of its own": (
        "class Of(keras.layers.LayerNormalization):\n    def __init__(self, **kwargs): super().__init__(axis=-1, **kwargs)\n"
        "it = Of(epsilon=1e-3)\nit(ones)",
        "(it.epsilon, list(it.axis))",
    ),
    "what it takes of what a base of the notebook is given": (
        "class A(keras.layers.Layer):\n    def __init__(self, fn=None, **kw): super().__init__(**kw); self.fn = fn\n"
        "class Of(A):\n    def __init__(self, **kwargs): super().__init__(kwargs.pop('fn', None), **kwargs)\n"
        "it = Of(fn=keras.ops.tanh)",
        "it.fn.__name__",
    ),
    "takes what it passes on by its place": (
        "class Of(keras.layers.Dense):\n    def __init__(self, **kwargs): super().__init__(kwargs.pop('units', 3), **kwargs)\n"
        "it = Of(units=5)",
        "it.units",
    ),
    "keeps what it passes on first": (
        "class Of(keras.layers.Dense):\n    def __init__(self, **kwargs):\n"
        "        units: int = int(kwargs.pop('units', 3))\n        self.acts = kwargs.pop('activation', None) or 'relu'\n"
        "        super().__init__(units, activation=self.acts, **kwargs)\n"
        "it = Of(units=5)",
        "(it.units, it.activation.__name__)",
    ),
    "layers that share what drops": (
        "class Of(keras.layers.Layer):\n    def __init__(self, a, b):\n"
        "        super().__init__(); self.a, self.b = a, b\n"
        "drop = keras.layers.Dropout(0.5)\nblocks = [keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2), drop]) for _ in range(2)]\n"
        "it = Of(*blocks)",
        "[each.shape for each in it.get_weights()]",
    ),
}


@pytest.mark.parametrize("what", DERIVED)
def test_what_is_derived_of_keras_s_has_what_it_was_given(what, keras_here, ns, rank):
    source, tells = DERIVED[what]
    run(ns, source)
    back = rank.take("it", ns["it"])
    assert back is not ns["it"]
    assert eval(tells, {"it": back}) == eval(tells, {"it": ns["it"]})


@pytest.mark.parametrize(
    ("takes", "keeps", "what"),
    [
        ("dropout=0.1", "self.dropout = keras.layers.Dropout(dropout)", "dropout"),
        ("blocks=2", "self.blocks = [keras.layers.Dense(2) for _ in range(blocks)]", "blocks"),
        ("training=True", "self.trains = training", "training"),
    ],
)
def test_what_is_made_of_an_argument_is_not_the_argument(takes, keeps, what, keras_here, ns):
    net_of(ns, "net = Net()", takes=f", {takes}", keeps=keeps)
    with pytest.raises(PayloadError, match=f"Net has none that says its {what}: give it one"):
        payload.pack("net", ns["net"])


def test_what_an_init_does_to_weights_of_its_arguments_is_done(keras_here, ns, rank):
    """A network that is to follow another one begins as that one is, and has its own weights since."""
    run(
        ns,
        "class Net(keras.Model):\n    def __init__(self, online, target):\n"
        "        super().__init__(); self.online, self.target = online, target\n"
        "        target.set_weights(online.get_weights())\n"
        "    def call(self, x): return self.online(x) + self.target(x)\n"
        "online, target = (keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)]) for _ in 'ab')\n"
        "net = Net(online, target)\nonline.set_weights([2 * each + 1 for each in online.get_weights()])\nnet(ones)",
    )
    back = rank.take("net", ns["net"])
    for name in ("online", "target"):
        assert said(getattr(back, name), ns) == said(ns[name], ns)


@pytest.mark.parametrize(
    ("takes", "gives"),
    [
        ("self.extra = kwargs.pop('activation', None)", ""),
        ("changed = not kwargs.pop('use_bias', False)", "use_bias=changed, "),
    ],
)
def test_what_a_class_takes_of_what_it_passes_on_is_told_of(keras_here, ns, takes, gives):
    run(
        ns,
        "class Of(keras.layers.Dense):\n    def __init__(self, units, **kwargs):\n"
        f"        {takes}\n        super().__init__(units, {gives}**kwargs)\n"
        "it = Of(3)",
    )
    with pytest.raises(PayloadError, match=r"none that says its \*\*kwargs"):
        payload.pack("it", ns["it"])


@pytest.mark.parametrize(
    ("base", "init", "makes", "name"),
    [
        ("Dropout", "(self, rate): super().__init__(rate / 2)", "it = Of(0.4)", "rate"),
        (
            "Dense",
            "(self, units, **kwargs): super().__init__(units, activation='softmax', **kwargs)",
            "it = Of(3)\nit.activation = keras.activations.linear",
            "activation",
        ),
        (
            "Dense",
            "(self, units): super().__init__(units)",
            "it = Of(3)\nit.kernel_regularizer = keras.regularizers.L2(0.5)",
            "kernel_regularizer",
        ),
        (
            "MaxPooling2D",
            "(self, size=2):\n        super().__init__((size, size))\n        self.size = size",
            "it = Of(2)\nit.size = 4",
            "pool_size",
        ),
        (
            "LayerNormalization",
            "(self, **kwargs):\n        axis = kwargs.pop('axis', [-1])\n        axis = [each - 1 for each in axis]\n"
            "        super().__init__(axis=axis, **kwargs)",
            "it = Of()",
            "axis",
        ),
    ],
    ids=[
        "changed before it is passed on",
        "fixed, and set since",
        "not taken, and set since",
        "made of what was set since",
        "a list that is changed before it is passed on",
    ],
)
def test_what_is_given_on_otherwise_is_told_of(base, init, makes, name, keras_here, ns, rank):
    run(ns, f"class Of(keras.layers.{base}):\n    def __init__{init}\n{makes}")
    with pytest.raises(
        ValueError, match=f"Of gives its {name} on otherwise than it is given it: give"
    ):
        rank.take("it", ns["it"])


def test_a_model_whose_parts_nobody_can_build_says_so(keras_here, ns, rank):
    run(
        ns,
        "class Of(keras.Model):\n    def __init__(self): super().__init__(); self.parts = []\n"
        "    def call(self, x):\n"
        "        if not self.parts: self.parts.append(keras.layers.Dense(3)); self.parts[0].build(x.shape)\n"
        "        return x if isinstance(x, keras.KerasTensor) else self.parts[0](x)\n"
        "it = Of()\nit.built = True\nit._tracker.unlock()\nit(ones)",
    )
    with pytest.raises(ValueError, match="Of came without all of its weights"):
        rank.take("it", ns["it"])


def test_a_layer_that_is_an_argument_and_elsewhere_is_told_of(keras_here, ns):
    run(
        ns,
        "class Tied(keras.layers.Layer):\n    def __init__(self, first): super().__init__(); self.first = first\n"
        "    def call(self, x): return keras.ops.matmul(x, keras.ops.transpose(self.first.kernel))\n"
        "dense = keras.layers.Dense(3)\nnet = keras.Sequential([dense, Tied(dense)])\nnet(ones)",
    )
    match = "the layer 'dense.*' was given to Tied and is elsewhere in Sequential, too"
    with pytest.raises(PayloadError, match=match):
        payload.pack("net", ns["net"])


def test_a_network_that_adds_its_layers_itself_is_told_of(keras_here, ns):
    run(
        ns,
        "class Net(keras.Sequential):\n    def __init__(self):\n"
        "        super().__init__(); self.add(keras.layers.Dense(1))\nnet = Net()",
    )
    with pytest.raises(
        PayloadError, match="Net has none that says its layers: give it one, or make"
    ):
        payload.pack("net", ns["net"])


def test_a_class_that_cannot_be_made_of_its_attributes_says_so(keras_here, ns, rank):
    net_of(ns, "net = Net(3)", takes=", size", keeps="self.size = keras.layers.Dense(size)")
    with pytest.raises(
        ValueError, match="Net cannot be made again of its attributes size: give it"
    ):
        rank.take("net", ns["net"])


def test_weights_of_arguments_travel_once(keras_here, ns, rank):
    run(
        ns,
        "class Net(keras.Model):\n    def __init__(self, encoder):\n"
        "        super().__init__(); self.encoder = encoder\n"
        "    def call(self, x): return self.encoder(x)\n"
        "encoder = keras.Sequential([keras.layers.Dense(100_000)])\nnet = Net(encoder)\nnet(ones)",
    )
    assert payload.pack("net", ns["net"]).size < 2 * 4 * 300_000
    back = rank.take("net", ns["net"])
    assert said(back.encoder, ns) == said(ns["encoder"], ns)
    assert vars(ns["encoder"].layers[0]).keys().isdisjoint({"save_own_variables"})
    assert vars(back.encoder.layers[0]).keys().isdisjoint({"load_own_variables"})


def test_what_a_compile_keeps_to_itself_is_left_to_keras(keras_here, ns, rank):
    """Keras notes of it that it was given nothing, and the model would train with another loss."""
    compiles = (
        "def compile(self, optimizer, loss=None):\n        super().compile(optimizer=optimizer)\n"
        "        self.loss_fn = loss or keras.losses.MeanSquaredError()"
    )
    net_of(ns, "net = Net()\nnet.compile('sgd', keras.losses.MeanAbsoluteError())", more=compiles)
    with pytest.warns(UserWarning, match=r"`compile\(\)` was not called"):
        assert not hasattr(rank.take("net", ns["net"]), "loss_fn")


def test_networks_of_layers_with_arguments_of_their_own_say_so(keras_here, ns):
    exec(
        BEGIN + "class Net(keras.Sequential):\n    def __init__(self, size):\n"
        "        super().__init__([keras.layers.Input((2,)), keras.layers.Dense(size)])\n"
        "        self.size = size\nnet = Net(3)",
        ns,
    )
    with pytest.raises(PayloadError, match="Net has none that says its size: give it one, or make"):
        payload.pack("net", ns["net"])


def test_arguments_that_share_a_layer_are_told_of(keras_here, ns):
    net_of(
        ns,
        "net = Net(encoder, keras.Sequential([encoder, keras.layers.Dense(1)]))",
        takes=", encoder, both",
        keeps="self.encoder, self.both = encoder, both",
    )
    with pytest.raises(PayloadError, match="encoder and both of Net share the layer 'sequential"):
        payload.pack("net", ns["net"])
    # Where there is nothing in it, it does not matter.
    net_of(
        ns,
        "flat = keras.layers.Flatten()\n"
        "net = Net(keras.Sequential([flat, encoder]), keras.Sequential([flat]))",
        takes=", encoder, both",
        keeps="self.encoder, self.both = encoder, both",
    )
    ns["net"].both(ns["ones"])
    ns["net"].encoder(ns["ones"])
    assert payload.pack("net", ns["net"])


COMPILES = "def compile(self, {}):\n        {}"


def test_a_compile_whose_arguments_are_not_known_is_left_to_keras(keras_here, ns, rank):
    for takes, does in (
        ("alpha=0.1, **kwargs", "super().compile(**kwargs); self.alpha = alpha"),
        ("optimizer, *rest", "super().compile(optimizer); self.rest = rest"),
        ("optimizer, alpha=0.1", "super().compile(optimizer); self._alpha = alpha"),
    ):
        net_of(ns, "net = Net()\nnet.compile(optimizer='sgd')", more=COMPILES.format(takes, does))
        with pytest.warns(UserWarning, match=r"`compile\(\)` was not called"):
            back = rank.take("net", ns["net"])
        assert said(back, ns) == said(ns["net"], ns)
        assert not {"alpha", "rest", "_alpha"} & vars(back).keys()


def test_a_compile_has_what_it_was_given_also_of_keras_s_own(keras_here, ns, rank):
    does = "super().compile(optimizer, 'mse', loss_weights, metrics); self.reduction = reduction"
    takes = "optimizer, metrics, reduction='sum', loss_weights=None"
    made = "net = Net()\nnet.compile(keras.optimizers.Adam(0.5), ['mae'], 'mean', [3.0])\n"
    net_of(ns, f"{made}net.fit(ones, ones[:, :1], verbose=0)", more=COMPILES.format(takes, does))
    back = rank.take("net", ns["net"])
    assert (back._compile_config.config["metrics"], back.reduction) == (["mae"], "mean")
    assert back._compile_config.config["loss_weights"] == [3.0]
    ones = ns["ones"]
    again = [net.fit(ones, ones[:, :1], verbose=0).history for net in (ns["net"], back)]
    assert again[0] == pytest.approx(again[1])
    assert said(back, ns) == pytest.approx(said(ns["net"], ns))
    assert int(back.optimizer.iterations) == 2


OPTIMIZERS = {
    "plain": "keras.optimizers.Adam(0.5)",
    "a schedule of the notebook": "keras.optimizers.Adam(Halves())",
    "a function": "keras.optimizers.SGD(rate, momentum=0.5)",
    "of the notebook": "Bare(0.5)",
    "scaled": "keras.optimizers.LossScaleOptimizer(Bare(0.5))",
    "averaged": "keras.optimizers.SGD(0.5, momentum=0.5, gradient_accumulation_steps=2)",
}
OF_OPTIMIZERS = """
class Halves(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step): return 0.5 / (1 + keras.ops.cast(step, "float32"))
    def get_config(self): return {}
class Bare(keras.optimizers.SGD):
    def __init__(self, learning_rate=0.1): super().__init__(learning_rate, momentum=0.5)
    def get_config(self): return {"learning_rate": float(self.learning_rate)}
def rate(): return 0.25
def train(net, optimizer):
    optimizer.apply([keras.ops.ones(each.shape) for each in net.trainable_variables], net.trainable_variables)
"""


@pytest.mark.parametrize("what", OPTIMIZERS)
def test_an_optimizer_by_itself_goes_on_with_what_it_has_trained(what, keras_here, ns, rank):
    exec(
        BEGIN
        + OF_OPTIMIZERS
        + OF.format("keras.layers.Dense(1)")
        + f"of(ones)\noptimizer = {OPTIMIZERS[what]}\n"
        "optimizer.build(of.trainable_variables)\ntrain(of, optimizer)",
        ns,
    )
    of, optimizer, train = ns["of"], ns["optimizer"], ns["train"]
    there = rank.take("of", of)
    digests = {payload.pack("optimizer", optimizer, to_ranks=True).digest for _ in range(3)}
    assert len(digests) == 1
    # Also from a process to which it came, and where it was not used.
    back = rank.take("optimizer", rank.take("optimizer", optimizer))
    if "scaled" not in what:
        assert int(back.iterations) == int(optimizer.iterations)
    for _ in range(2):
        train(of, optimizer)
        train(there, back)
        assert said(there, ns) == said(of, ns)
    assert int(back.iterations) == int(optimizer.iterations)


def test_what_is_set_of_an_optimizer_before_its_first_step_stays(keras_here, ns, rank):
    exec(
        BEGIN + OF_OPTIMIZERS + OF.format("keras.layers.Dense(1)") + "of(ones)\n"
        "adam = keras.optimizers.Adam(0.5)\nadam.build(of.trainable_variables)\ntrain(of, adam)",
        ns,
    )
    back = rank.take("adam", ns["adam"])
    back.learning_rate = 0.125
    back = rank.take("adam", back)
    assert float(back.learning_rate) == 0.125
    back.learning_rate = 0.25
    ns["train"](rank.take("of", ns["of"]), back)
    assert (float(back.learning_rate), int(back.iterations)) == (0.25, 2)
    other = rank.take("adam", ns["adam"])
    with pytest.warns(
        UserWarning, match=r"'adam\w*' begins anew: what it trains is not what it has"
    ):
        other.build(ns["of"].trainable_variables[:1])
    assert (int(other.iterations), float(other.learning_rate)) == (0, 0.5)


def test_weights_that_are_loaded_of_a_file_bring_the_state_of_an_optimizer(
    keras_here, ns, rank, tmp_path
):
    made = "net = Net()\nnet.compile(keras.optimizers.Adam(0.5))\nfor _ in range(2): net.fit(ones, ones[:, :1], verbose=0)"
    net_of(ns, made, more=COMPILES.format("optimizer", "super().compile(optimizer, 'mse')"))
    net = ns["net"]
    net.save_weights(tmp_path / "two.weights.h5")
    net.fit(ns["ones"], ns["ones"][:, :1], verbose=0)
    back = rank.take("net", net)
    assert int(back.optimizer.iterations) == 3
    back.load_weights(tmp_path / "two.weights.h5")
    net.load_weights(tmp_path / "two.weights.h5")
    assert int(back.optimizer.iterations) == int(net.optimizer.iterations) == 2
    for each in (net, back):
        each.fit(ns["ones"], ns["ones"][:, :1], verbose=0)
    assert said(back, ns) == pytest.approx(said(net, ns))


def test_a_compile_that_keeps_something_otherwise_says_so(keras_here, ns, rank):
    does = "super().compile(optimizer); self.scale = scale * 2"
    made = "net = Net()\nnet.compile('sgd', 3)"
    net_of(ns, made, more=COMPILES.format("optimizer, scale", does))
    with pytest.raises(ValueError, match=r"its scale otherwise than compile\(\) is given it: give"):
        rank.take("net", ns["net"])


def test_tensorflow_is_not_imported_for_a_model_that_has_nothing_of_it(
    keras_here, ns, rank, monkeypatch
):
    from keras.src.utils.module_utils import tensorflow

    wide = (
        "class Wide(keras.layers.Dense):\n    def __init__(self, units): super().__init__(units)\n"
    )
    layers = "keras.layers.Bidirectional(keras.layers.LSTM(2)), Wide(1)"
    exec(BEGIN + wide + OF.format(layers).replace("(2,)", "(3, 2)"), ns)
    ns["of"].compile("sgd", "mse")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setattr(tensorflow, "_available", None)
    monkeypatch.setattr(tensorflow, "initialize", lambda: pytest.fail("it is imported"))
    assert len(rank.take("of", ns["of"]).layers) == 2


def test_models_are_packed_by_several_threads(keras_here, ns):
    exec(BEGIN + LAYER + OF.format("Twice()"), ns)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        digests = threads.map(
            lambda _: payload.pack("of", ns["of"], to_ranks=True).digest, range(8)
        )
    assert len(set(digests)) == 1
    assert keras_here.saving.get_registered_name(ns["Twice"]) == "Twice"
