"""The loops of transformers' `Trainer` as bars on every rank, its logs as metrics."""

import importlib

import pytest
from later import Later, needs
from tiers import few

from skyward_nb.protocol.events import Metric, Progress
from skyward_nb.runtime import event_sink, hooks

# torch's and accelerate's own, about processors without a GPU.
pytestmark = [
    pytest.mark.torch,
    needs("torch", "accelerate", "transformers"),
    pytest.mark.filterwarnings("ignore"),
]

transformers = Later("transformers")
callbacks = Later("transformers.trainer_callback")
own = Later("runtime.trainers")


def train(folder, kind="Trainer", **options):
    return own.train(folder, getattr(own, kind), **options)


def bars(events):
    """The last that was told of each bar, in the order of their beginnings."""
    return list({event.bar: event for event in events if isinstance(event, Progress)}.values())


def metrics(events):
    return [event for event in events if isinstance(event, Metric)]


@pytest.mark.parametrize("kind", few(1, ["Trainer", "SecondRank"]))
def test_training_is_a_bar_and_evaluation_one_within(kind, told, capsys, tmp_path):
    trainer = train(tmp_path, kind)
    assert trainer.state.is_world_process_zero is (kind == "Trainer")
    shown = [(bar.text, bar.done, bar.total, bar.level, bar.keeping) for bar in bars(told)]
    assert shown == [("train", 8, 8, 0, True)] + 2 * [("evaluate", 4, 4, 1, False)]
    assert all(bar.over and bar.unit == "step" for bar in bars(told))
    assert capsys.readouterr() == ("", "")


def test_logs_are_metrics_at_their_step(told, tmp_path):
    trainer = train(tmp_path)
    found = {
        (metric.step, name): each
        for metric in metrics(told)
        for name, each in metric.values.items()
    }
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["step"] for entry in logged] == [4, 8]
    for entry in logged:
        for name in ("loss", "learning_rate", "grad_norm"):
            assert found[entry["step"], name] == entry[name]
    assert {name for _, name in found} == {
        "loss",
        "learning_rate",
        "grad_norm",
        "eval_loss",
        "train_loss",
    }
    notes = {event.note for event in told if isinstance(event, Progress)}
    assert f"train_loss={found[8, 'train_loss']:.4g}" in notes


def test_evaluation_and_prediction_alone(told, capsys, tmp_path):
    trainer = train(tmp_path, eval_strategy="no")
    told.clear()
    trainer.evaluate()
    trainer.predict(own.DATA)
    shown = [(bar.text, bar.done, bar.total, bar.level) for bar in bars(told)]
    assert shown == 2 * [("predict", 4, 4, 0)]
    assert capsys.readouterr() == ("", "")


def test_without_bars_there_are_metrics_still(told, capsys, tmp_path):
    train(tmp_path, disable_tqdm=True)
    assert bars(told) == []
    assert {"loss", "eval_loss"} <= {name for metric in metrics(told) for name in metric.values}
    assert "'eval_loss'" in capsys.readouterr().out


@pytest.mark.extensive
def test_training_goes_on_from_a_checkpoint(told, tmp_path):
    train(tmp_path, save_strategy="steps", save_steps=6)
    told.clear()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        report_to=[],
        save_strategy="no",
    )
    transformers.Trainer(own.Line(), arguments, train_dataset=own.DATA).train(
        resume_from_checkpoint=str(tmp_path / "checkpoint-6")
    )
    assert (bars(told)[0].done, bars(told)[0].total, bars(told)[0].skipped) == (8, 8, 6)


@pytest.mark.extensive
def test_a_callback_of_ones_own(told, capsys, tmp_path):
    train(tmp_path, "WithTalk", eval_strategy="no")
    assert [(bar.text, bar.done) for bar in bars(told)] == [("train", 8)]
    assert capsys.readouterr().out.splitlines() == 2 * ["a line of my own"]


def test_leaving_restores_every_object():
    module = importlib.import_module("transformers.trainer")
    owners = module, callbacks.ProgressCallback, callbacks.CallbackHandler
    before = [dict(vars(owner)) for owner in owners]
    with hooks.installed():
        assert vars(owners[1])["on_log"] is not before[1]["on_log"]
    for owner, was in zip(owners, before, strict=True):
        assert [name for name in was if vars(owner)[name] is not was[name]] == []
        assert vars(owner).keys() == was.keys()


def test_as_ever_without_a_pool(capsys, tmp_path):
    event_sink.connect(None)
    with hooks.installed():
        train(tmp_path)
    out, err = capsys.readouterr()
    assert "'loss'" in out
    assert "8/8" in err
