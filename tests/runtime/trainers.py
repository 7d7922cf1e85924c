"""A small model trained by transformers' `Trainer`, and callbacks as people write them."""

from __future__ import annotations

import torch
from transformers import Trainer, TrainingArguments, trainer_callback


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x=None, labels=None):
        found = self.layer(x)
        return {"loss": ((found[:, 0] - labels) ** 2).mean(), "logits": found}


DATA = [{"x": torch.tensor([n, -n]) / 32, "labels": torch.tensor(n / 32)} for n in range(32)]


class SecondRank(Trainer):
    """As on any process but the first."""

    def is_world_process_zero(self):
        return False

    def is_local_process_zero(self):
        return False


class Talkative(trainer_callback.ProgressCallback):
    """As people extend the callback."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        if state.is_world_process_zero and "loss" in logs:
            self.training_bar.write("a line of my own")


class WithTalk(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.remove_callback(trainer_callback.ProgressCallback)
        self.add_callback(Talkative)


def train(folder, kind=Trainer, **options):
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        logging_steps=4,
        report_to=[],
        **{"save_strategy": "no", "eval_strategy": "epoch", **options},
    )
    trainer = kind(Line(), arguments, train_dataset=DATA, eval_dataset=DATA)
    trainer.train()
    return trainer
