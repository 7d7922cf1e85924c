"""The guides' fine-tuning with Hugging Face's Trainer, in our words: a tiny model, tokenizer and data set on disk."""

from __future__ import annotations

import json

import pytest
from later import needs
from leaks import leaves_nothing

import skyward_nb as sky

pytestmark = [pytest.mark.torch, needs("transformers", "datasets", "accelerate", "torch")]


@pytest.fixture(scope="module")
def pool():
    with pytest.MonkeyPatch.context() as env, leaves_nothing():
        env.setenv("HF_HUB_OFFLINE", "1")
        with sky.ComputePool(
            provider=sky.Local(),
            nodes=2,
            accelerator="A100",
            pip=["transformers", "datasets", "torch", "accelerate"],
            simulate=True,
            quiet=True,
        ) as pool:
            yield pool


@sky.integrations.transformers(token="hf_not_a_real_one")
@sky.compute
def make_model(folder):
    """What a hub would have: the head writes it."""
    import os

    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import (
        DistilBertConfig,
        DistilBertForSequenceClassification,
        PreTrainedTokenizerFast,
    )

    words = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=8
    )
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=8, max_position_embeddings=8, n_layers=1, n_heads=2, dim=16, hidden_dim=16
    )
    if sky.is_head():
        tokenizer.save_pretrained(folder)
        DistilBertForSequenceClassification(config).save_pretrained(folder)
    return os.environ["HF_TOKEN"]


@sky.integrations.transformers(backend="nccl")
@sky.compute
def fine_tune(folder, output):
    import torch
    from datasets import load_dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
    )

    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    files = {"train": str(folder / "train.json"), "test": str(folder / "test.json")}
    dataset = load_dataset("json", data_files=files, cache_dir=str(folder / "cache"))

    def tokenize(examples):
        return tokenizer(examples["text"], truncation=True, padding="max_length", max_length=4)

    tokenized = dataset.map(tokenize, batched=True)
    args = TrainingArguments(
        output_dir=str(output),
        num_train_epochs=3,
        per_device_train_batch_size=4,
        learning_rate=0.03,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=tokenized["train"], eval_dataset=tokenized["test"]
    )
    trainer.train()
    weights = torch.cat([each.detach().flatten() for each in trainer.model.parameters()])
    return {
        "world": args.world_size,
        "steps": trainer.state.global_step,
        "loss": trainer.evaluate()["eval_loss"],
        "weights": weights.double().sum().item(),
    }


@pytest.mark.extensive
@pytest.mark.timeout(240)
def test_the_trainer_sees_both_ranks_and_evaluates_for_all(pool, tmp_path):
    rows = [{"text": f"{word} film", "label": int(word == "good")} for word in ("good", "bad") * 16]
    for name, part in (("train", rows), ("test", rows[:8])):
        (tmp_path / f"{name}.json").write_text("\n".join(map(json.dumps, part)))
    assert make_model(tmp_path) @ pool == ["hf_not_a_real_one"] * 2

    first, second = fine_tune(tmp_path, tmp_path / "results") @ pool
    assert first == second, "one model, and one evaluation of both parts of the data"
    assert (first["world"], first["steps"]) == (2, 3 * 32 // (2 * 4))
    assert first["loss"] < 0.4, "torchrun has 0.146, and a guess 0.693"
