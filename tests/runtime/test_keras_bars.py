"""Keras's loops as bars, its logs as metrics."""

import importlib
import os
import sys
import time

import pytest
from later import Later, needs

from skyward_nb.protocol.events import Metric, Progress
from skyward_nb.runtime import event_sink, hooks
from skyward_nb.runtime.loops import _DUE

np = pytest.importorskip("numpy")
os.environ.setdefault("KERAS_BACKEND", "torch")
keras = Later("keras")

# Keras converts arrays in a way that NumPy means to end.
pytestmark = [
    pytest.mark.torch,
    needs("torch", "keras"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

X = np.random.default_rng(0).random((64, 4), dtype="float32")
Y = X.sum(1)


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(loss="mse", metrics=["mae"])
    return model


def bars(events):
    """The last that was told of each bar, in the order of their beginnings."""
    return list({event.bar: event for event in events if isinstance(event, Progress)}.values())


def metrics(events):
    return [event for event in events if isinstance(event, Metric)]


def test_epochs_are_a_bar_and_so_are_the_steps_in_them(model, told, capsys):
    model.fit(X, Y, epochs=3, batch_size=16)
    outer, inner = bars(told)
    assert (outer.text, outer.unit, outer.done, outer.total) == ("fit", "epoch", 3, 3)
    assert (inner.text, inner.unit, inner.done, inner.total) == ("step", "step", 4, 4)
    assert (outer.level, inner.level) == (0, 1)
    assert (outer.over, inner.over, inner.keeping) == (True, True, False)
    assert "loss=" in outer.note
    assert capsys.readouterr() == ("", "")


def test_an_epochs_logs_are_metrics_at_that_epoch(model, told):
    history = model.fit(X, Y, epochs=3, batch_size=16, validation_split=0.25).history
    assert [metric.step for metric in metrics(told)] == [0, 1, 2]
    assert metrics(told)[1].values == {name: values[1] for name, values in history.items()}
    assert set(history) == {"loss", "mae", "val_loss", "val_mae"}


def test_validation_takes_the_place_of_the_steps(model, told):
    model.fit(X, Y, epochs=2, batch_size=16, validation_split=0.25)
    assert [bar.text for bar in bars(told)] == ["fit", "validation"]
    assert (bars(told)[1].done, bars(told)[1].total) == (1, 1)


def test_no_bars_and_no_metrics_where_none_are_wanted(model, told, capsys):
    model.fit(X, Y, verbose=0)
    model.evaluate(X, Y, verbose=0)
    model.predict(X, verbose=0)
    assert told == []
    assert capsys.readouterr() == ("", "")


def test_a_line_per_epoch_stays_where_it_is_wanted(model, told, capsys):
    model.fit(X, Y, epochs=2, batch_size=16, verbose=2)
    assert [(bar.text, bar.done) for bar in bars(told)] == [("fit", 2)]
    assert len(metrics(told)) == 2
    printed = capsys.readouterr().out
    assert "Epoch 2/2" in printed
    assert printed.count("4/4 - ") == 2


def test_evaluate_and_predict(model, told, capsys):
    found = model.evaluate(X, Y, batch_size=8, return_dict=True)
    model.predict(X, batch_size=8)
    evaluate, predict = bars(told)
    assert (evaluate.text, evaluate.done, evaluate.total) == ("evaluate", 8, 8)
    assert f"loss={found['loss']:.4g}" in evaluate.note
    assert (predict.text, predict.done, predict.over) == ("predict", 8, True)
    assert metrics(told) == []
    assert capsys.readouterr() == ("", "")


def test_epochs_that_go_on_from_a_later_one(model, told):
    model.fit(X, Y, epochs=5, initial_epoch=3)
    assert [metric.step for metric in metrics(told)] == [3, 4]
    assert (bars(told)[0].done, bars(told)[0].total, bars(told)[0].skipped) == (5, 5, 3)


def batches():
    for _ in range(6):
        yield X[:8], Y[:8]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_generator_has_no_total(model, told):
    model.fit(batches(), epochs=1, shuffle=False)
    assert (bars(told)[1].done, bars(told)[1].total) == (6, None)


def test_a_fit_that_is_interrupted_ends(model, told):
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, callbacks=[Stops()])
    model.evaluate(X, Y)
    assert [(bar.text, bar.level, bar.over) for bar in bars(told)] == [
        ("fit", 0, True),
        ("step", 1, True),
        ("evaluate", 0, True),
    ]


def test_evaluate_within_fit(model, told):
    class Evaluates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.evaluate(X, Y)

    model.fit(X, Y, callbacks=[Evaluates()])
    assert [(bar.text, bar.level) for bar in bars(told)] == [
        ("fit", 0),
        ("step", 1),
        ("evaluate", 2),
    ]


def test_many_short_epochs_make_few_events(model, told):
    began = time.perf_counter()
    model.fit(X[:2], Y[:2], epochs=100)
    at_most = (time.perf_counter() - began) / _DUE  # of each bar, however slow it is
    assert len(metrics(told)) == 100
    assert len(told) - 100 < 120 + 2 * at_most


def test_with_a_callback_of_tqdms(model, told, capsys):
    pytest.importorskip("tqdm")
    from tqdm.keras import TqdmCallback

    model.fit(X, Y, epochs=2, batch_size=16, verbose=0, callbacks=[TqdmCallback(verbose=0)])
    assert [(bar.done, bar.total, bar.unit) for bar in bars(told)] == [(2, 2, "epoch")]
    assert capsys.readouterr() == ("", "")


def test_a_bar_of_ones_own(told, capsys):
    bar = keras.utils.Progbar(4, unit_name="file")
    for done in range(1, 5):
        bar.update(done, [("size", done)])
    (shown,) = bars(told)
    assert (shown.done, shown.total, shown.unit, shown.over) == (4, 4, "file", True)
    assert capsys.readouterr() == ("", "")
    keras.utils.Progbar(2, verbose=2).update(2)
    assert "2/2" in capsys.readouterr().out


def test_leaving_restores_every_object():
    logger = importlib.import_module("keras.src.callbacks.progbar_logger").ProgbarLogger
    progbar = importlib.import_module("keras.src.utils.progbar").Progbar
    before = dict(vars(logger)), dict(vars(progbar))
    with hooks.installed():
        assert vars(logger)["on_epoch_end"] is not before[0]["on_epoch_end"]
    for now, was in zip((vars(logger), vars(progbar)), before, strict=True):
        assert now.keys() == was.keys()
        assert [name for name in was if now[name] is not was[name]] == []


def test_as_ever_without_a_pool(model, capsys):
    event_sink.connect(None)
    with hooks.installed():
        model.fit(X, Y, epochs=1, batch_size=16)
    assert "4/4" in capsys.readouterr().out
    assert "keras" in sys.modules
