"""Fine-tuning with Hugging Face's Trainer over two ranks; a tiny model of its configuration alone."""

import random

from datasets import Dataset
from transformers import BertConfig

import skyward_nb as sky

dice = random.Random(0)
# Sentences of words 2 to 99; the label says whether low words are more.
rows = [[dice.randrange(2, 99) for _ in range(16)] for _ in range(512)]
texts = Dataset.from_dict(
    {
        "input_ids": [[1, *row] for row in rows],
        "labels": [int(sum(word < 50 for word in row) > 8) for row in rows],
    }
)
config = BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
)


@sky.function
@sky.stdout(only="head")
def fine_tune(texts, config, epochs):
    import tempfile

    import torch
    from transformers import BertForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=32,
        num_train_epochs=epochs,
        learning_rate=5e-3,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        logging_steps=8,
        save_strategy="no",
        report_to=[],
    )
    model = BertForSequenceClassification(config)
    trainer = Trainer(model=model, args=arguments, train_dataset=texts)
    trainer.train()
    return arguments.world_size, trainer.state.global_step, trainer.state.log_history[-2]["loss"]


with sky.Compute(nodes=2, plugins=[sky.plugins.huggingface()]) as pool:
    ranks = fine_tune(texts, config, epochs=8) @ pool

for rank, (world, steps, loss) in enumerate(ranks):
    print(f"rank {rank} of {world}: {steps} steps, loss {loss:.3f}")
