"""Models, layers and losses of Keras with classes and functions of the notebook."""

import os

import pytest
from later import needs

from skyward_nb.pickling import payload

os.environ.setdefault("KERAS_BACKEND", "torch")

pytestmark = [
    needs("keras", "torch"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
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
