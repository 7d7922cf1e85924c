"""Keras 3 on torch and TensorFlow: `fit` trains one model over all ranks."""

import pytest
from absent import BESIDE_KERAS, doing_without
from later import Later, needs
from pools import request, start, values

from skyward_nb.pickling.payload import unpack

np = Later("numpy")

pytestmark = [needs("keras"), pytest.mark.timeout(400)]

MODEL = """
import os, warnings, keras, numpy as np, skyward_nb as sky
info = sky.instance_info()
n, r = info.world_size, info.rank
rng = np.random.default_rng(0)
x, y = rng.normal(size=(60, 8)).astype("float32"), rng.normal(size=(60, 4)).astype("float32")
mine = np.arange(60).reshape(5, n, 12 // n)[:, r].ravel()  # a part of each batch of 12 rows

def made(seed=0, lr=0.01, layers=(), **compiled):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, activation="tanh"),
                              *layers, keras.layers.Dense(4)])
    model.compile(keras.optimizers.Adam(lr), "mse", metrics=["mae"], **compiled)
    return model

def fitted(model, rows, batch, **more):
    kept = model.fit(x[rows], y[rows], batch_size=batch, epochs=np.int64(3), shuffle=False, verbose=0,
                     validation_data=(x[rows[:4]], y[rows[:4]]), **more).history
    return ({name: [float(v) for v in each] for name, each in kept.items()},
            [w.tolist() for w in model.get_weights()])

def raised(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


_LATER = pytest.param("tensorflow", marks=pytest.mark.extensive)
mostly_on_torch = pytest.mark.parametrize("pool", ["torch", _LATER], indirect=True, scope="module")


@pytest.fixture(scope="module")
def pool(request, tmp_path_factory):
    backend = request.param
    needless = ("tensorflow", "jax") if backend == "torch" else ("torch", "jax")
    with doing_without(tmp_path_factory.mktemp("absent"), *needless, *BESIDE_KERAS):
        made = start(nodes=2, framework=(f"keras:{backend}",))
        values(made, f"{MODEL}\n0")
        yield made
        made.close()


@pytest.fixture(scope="module")
def alone(pool):
    """History and weights of one rank with whole batches: it trains by itself when it runs alone."""
    outcome = pool.run(
        request(pool, "fitted(made(), np.arange(60), 12)", ranks=(0,)), lambda _: None
    )
    assert not outcome.failed
    return unpack(outcome.done[0].value, pool.store)


def assert_alike(found, expected, *, validation=False):
    for history, weights in found:
        for name in history:
            if validation or not name.startswith("val_"):
                assert history[name] == pytest.approx(expected[0][name], abs=1e-5)
        for one, other in zip(weights, expected[1], strict=True):
            assert np.allclose(one, other, atol=1e-5)


@mostly_on_torch
@pytest.mark.parametrize(
    "how",
    [
        "",
        *(
            pytest.param(each, marks=pytest.mark.extensive)
            for each in ("run_eagerly=True", "jit_compile=True")
        ),
    ],
)
def test_ranks_train_as_one_rank_does_with_the_whole_batch(pool, alone, how):
    """Whatever weights the others begin with."""
    if how == "jit_compile=True" and pool.spec.framework == ("keras:torch",):
        pytest.skip("torch.compile takes a minute")
    assert_alike(values(pool, f"fitted(made(seed=r, {how}), mine, 12 // n)"), alone)


@mostly_on_torch
def test_nobody_imports_tensorflow_to_train_without_it(pool):
    if pool.spec.framework != ("keras:torch",):
        pytest.skip("it trains with it")
    body = """
from keras.src.utils.module_utils import tensorflow
asked, model, was = [], made(lr=keras.optimizers.schedules.ExponentialDecay(0.01, 5, 0.9)), tensorflow._available
def absent():
    asked.append(1)
    raise ImportError
tensorflow._available, tensorflow.initialize = None, absent
fitted(model, mine, 6)
tensorflow._available = was
del tensorflow.initialize
asked
"""
    assert values(pool, body) == [[], []]


@mostly_on_torch
def test_metrics_and_validation_are_of_all_rows(pool):
    found = values(
        pool,
        "model = made()\nkept = fitted(model, mine, 6)\n"
        "own = [x[mine[:4]].tolist(), y[mine[:4]].tolist()]\n"
        "kept[0]['val_loss'][-1], kept[0]['val_mae'][-1], own, "
        "float(np.mean((model.predict(x[mine[:4]], verbose=0) - y[mine[:4]]) ** 2)), "
        "model.evaluate(x[mine[:4]], y[mine[:4]], verbose=0)[0]",
    )
    for own in found:  # outside of `fit`: of this rank's rows alone
        assert own[4] == pytest.approx(own[3], abs=1e-5)
    assert found[0][4] != found[1][4]
    assert found[0][:2] == found[1][:2]
    assert found[0][0] == pytest.approx((found[0][3] + found[1][3]) / 2, abs=1e-5)


@mostly_on_torch
def test_a_rank_with_fewer_rows_and_batches_takes_part_until_the_others_end(pool):
    """40 rows and 20: batches of 6 on one, and of 6 and none on the other."""
    body = (
        "part = np.arange(40) if r == 0 else np.arange(40, 60)\n"
        "got = fitted(made(), part, 6)\n"
        "late = np.arange(0) if r else np.arange(60)\n"
        "got"
    )
    (history, weights), other = values(pool, body)
    assert (history, weights) == other
    # Seven steps of up to 12 rows, of which the last ones are of the first rank alone.
    expected = values(
        pool,
        "together = [np.r_[i:min(i + 6, 40), 40 + i:max(40 + i, min(46 + i, 60))] for i in range(0, 40, 6)]\n"
        "os.environ['SKYWARD_KERAS_AVERAGE'] = 'no'\n"
        "class Given(keras.utils.PyDataset):\n"
        "    def __len__(self): return len(together)\n"
        "    def __getitem__(self, i): return x[together[i]], y[together[i]]\n"
        "model = made()\n"
        "kept = model.fit(Given(), epochs=3, shuffle=False, verbose=0).history if r == 0 else {'loss': ()}\n"
        "del os.environ['SKYWARD_KERAS_AVERAGE']\n"
        "[float(v) for v in kept['loss']], [w.tolist() for w in model.get_weights()]",
    )
    assert history["loss"] == pytest.approx(expected[0][0], abs=1e-5)
    for one, another in zip(weights, expected[0][1], strict=True):
        assert np.allclose(one, another, atol=1e-5)


@pytest.mark.extensive
@mostly_on_torch
def test_what_layers_gather_is_averaged_and_half_precision_trains(pool):
    body = (
        "model = made(layers=[keras.layers.BatchNormalization(), keras.layers.Dropout(0.1)])\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    bn = fitted(model, mine, 6)\n"
        "    again = fitted(model, mine, 6)\n"
        "keras.config.set_dtype_policy('mixed_float16')\n"
        "half = fitted(made(), mine, 6)\n"
        "keras.config.set_dtype_policy('float32')\n"
        "bn, again, half, [str(w.message) for w in told]"
    )
    one, other = values(pool, body)
    assert one[:3] == other[:3]
    assert np.isfinite(one[2][0]["loss"]).all() and one[2][0]["loss"][-1] < one[2][0]["loss"][0]
    assert sum("BatchNormalization" in each for each in one[3]) == 1


@pytest.mark.extensive
@mostly_on_torch
def test_a_step_of_the_users_own_with_two_optimizers(pool):
    body = """
class Pair(keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.two = keras.layers.Dense(4), keras.layers.Dense(4)
        self.second = keras.optimizers.SGD(0.05)
    def build(self, shape):
        self.one.build(shape); self.two.build(shape); self.built = True
    def call(self, given):
        return self.one(given) + self.two(given)
    def train_step(self, data):
        given, wanted = data
        if keras.config.backend() == "torch":
            self.zero_grad()
            loss = self.compute_loss(given, wanted, self(given))
            loss.backward()
            grads = [v.value.grad for v in self.trainable_weights]
            import torch
            with torch.no_grad():
                self.optimizer.apply(grads[:2], self.one.trainable_weights)
                self.second.apply(grads[2:], self.two.trainable_weights)
        else:
            import tensorflow as tf
            with tf.GradientTape() as tape:
                loss = self.compute_loss(given, wanted, self(given))
            grads = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(grads[:2], self.one.trainable_weights))
            self.second.apply_gradients(zip(grads[2:], self.two.trainable_weights))
        return {"own": loss}

keras.utils.set_random_seed(r)
model = Pair()
model.build((None, 8))
model.compile(keras.optimizers.SGD(0.05), "mse")
rows = np.arange(40) if r == 0 else np.arange(40, 60)
kept = model.fit(x[rows], y[rows], batch_size=6, epochs=2, verbose=0, shuffle=False).history
[float(v) for v in kept["own"]], [w.tolist() for w in model.get_weights()]
"""
    one, other = values(pool, body)
    assert one == other
    # Again, with batches of another size: what was compiled is compiled anew, and the last step is known.
    again = (
        "kept = model.fit(x[rows], y[rows], batch_size=5, epochs=2, verbose=0, shuffle=False).history\n"
        "[float(v) for v in kept['own']], [w.tolist() for w in model.get_weights()]"
    )
    one, other = values(pool, again)
    assert one == other


@mostly_on_torch
def test_it_ends_on_all_where_it_ends_on_one_and_the_head_keeps_models(pool, tmp_path):
    body = (
        "class Stop(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if r == 1 and batch == 2: self.model.stop_training = True\n"
        f"path = {str(tmp_path)!r} + f'/{{r}}.keras'\n"
        "kept = fitted(made(), mine, 6, callbacks=[Stop(), keras.callbacks.ModelCheckpoint(path)])\n"
        "len(kept[0]['loss']), kept[1], os.path.exists(path)"
    )
    one, other = values(pool, body)
    assert (one[0], one[2]) == (1, True)
    assert (other[0], other[2]) == (1, False)
    assert one[1] == other[1]


@pytest.mark.extensive
@mostly_on_torch
def test_a_callback_may_evaluate_on_one_rank(pool, alone):
    body = (
        "class Evaluates(keras.callbacks.Callback):\n"
        "    def on_train_batch_end(self, batch, logs=None):\n"
        "        if r == 0 and batch == 1: self.model.evaluate(x, y, verbose=0)\n"
        "    def on_epoch_end(self, epoch, logs=None):\n"
        "        if r == 0: self.model.evaluate(x, y, verbose=0)\n"
        "fitted(made(seed=r), mine, 12 // n, callbacks=[Evaluates()])[1]"
    )
    assert_alike([({}, weights) for weights in values(pool, body)], alone)


@pytest.mark.extensive
@mostly_on_torch
def test_what_a_fit_is_given_is_as_before_when_it_ends(pool, tmp_path):
    body = (
        "model = made()\n"
        "own = model.train_step\n"
        "model.train_step = lambda data: own(data)\n"
        "step = model.train_step\n"
        f"saving = keras.callbacks.ModelCheckpoint({str(tmp_path)!r} + f'/{{r}}.keras')\n"
        "asked = keras.callbacks.CallbackList([saving], add_history=True, model=model)\n"
        "before = list(asked.callbacks)\n"
        "found = [fitted(model, mine, 6, callbacks=asked)[1] for _ in range(2)]\n"
        "found, asked.callbacks == before, model.train_step is step, os.path.exists(saving.filepath)"
    )
    one, other = values(pool, body)
    assert one[0] == other[0]
    assert (one[1:], other[1:]) == ((True, True, True), (True, True, False))


@pytest.mark.extensive
@mostly_on_torch
def test_the_head_keeps_logs_and_backups_and_all_go_on_from_its_backup(pool, tmp_path):
    body = (
        f"path = {str(tmp_path)!r} + f'/{{r}}'\n"
        "class Breaks(keras.callbacks.Callback):\n"
        "    def on_epoch_begin(self, epoch, logs=None):\n"
        "        if epoch == 1: raise KeyError('broken')\n"
        "class Halves(keras.callbacks.Callback):\n"
        "    def on_epoch_begin(self, epoch, logs=None): self.model.optimizer.learning_rate = 0.01 / 2**epoch\n"
        "    def on_train_batch_end(self, batch, logs=None): self.model.optimizer.learning_rate = 0.004\n"
        "def callbacks(*more):\n"
        "    return [keras.callbacks.BackupAndRestore(path), keras.callbacks.CSVLogger(path + '.csv'), Halves(), *more]\n"
        "broken = raised(lambda: fitted(made(), mine, 6, callbacks=callbacks(Breaks())))\n"
        "wrote = os.path.exists(path), os.path.exists(path + '.csv')\n"
        "history, weights = fitted(made(), mine, 6, callbacks=callbacks())\n"
        "broken, wrote, len(history['loss']), weights, fitted(made(), mine, 6, callbacks=[Halves()])[1]"
    )
    one, other = values(pool, body)
    assert one[0] == other[0] == "KeyError: 'broken'"
    assert (one[1], other[1]) == ((True, True), (False, False))
    assert one[2] == other[2] == 2
    assert one[3] == other[3]
    # As if it had not been broken off.
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(one[3], one[4], strict=True))


@mostly_on_torch
def test_ranks_that_are_not_at_the_same_thing_are_told_so(pool):
    for differ, body in {
        "optimizers differ, of rank 0 and rank 1; here: class=Adam, learning_rate=": "fitted(made(lr=0.01 * (r + 1)), mine, 6)",
        "epochs= differ": "made().fit(x, y, epochs=1 + r, verbose=0)",
        "models differ": "fitted(made(layers=[keras.layers.Dense(5)] * r), mine, 6)",
    }.items():
        for said in values(pool, f"raised(lambda: {body})"):
            assert said.startswith("ValueError: Keras's fit trains one model over ranks 0-1, and")
            assert differ in said, said


@mostly_on_torch
def test_each_rank_trains_by_itself_where_that_is_asked_for_and_where_it_runs_alone(pool, alone):
    one, other = values(
        pool,
        "os.environ['SKYWARD_KERAS_AVERAGE'] = 'no'\n"
        "got = fitted(made(), mine, 6)\ndel os.environ['SKYWARD_KERAS_AVERAGE']\ngot",
    )
    assert one[1] != other[1]
    # The same model on the head alone, and on all ranks again: no step of it waits for others.
    values(pool, "fresh, kept = made(), made()\nfitted(kept, mine, 6)")
    body = "kept.fit(x, y, verbose=0); kept.evaluate(x, y, verbose=0); fresh.fit(x, y, verbose=0);"
    done = pool.run(request(pool, body, ranks=(0,)), lambda _: None)
    assert not done.failed
    # The optimizer of the fresh one has its variables on the head alone.
    one, other = values(pool, "fitted(kept, mine, 6), fitted(fresh, mine, 6)")
    assert one == other
