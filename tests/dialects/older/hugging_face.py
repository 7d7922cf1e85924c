"""Fine-tuning in the older dialect: `sky.integrations.transformers`, a loop of one's own with Accelerate."""

import skyward_nb as sky


@sky.compute
@sky.integrations.transformers(token="hf_not_a_real_one")
@sky.stderr(only="head")
def fine_tune(steps):
    import os

    import torch
    from accelerate import Accelerator
    from transformers import GPT2Config, GPT2LMHeadModel

    accelerator = Accelerator()
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=32,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    # Sentences that count: 3 4 5 6 ...
    starts = torch.arange(64) % 16
    sentences = [starts[row] + torch.arange(16) for row in range(64)]
    loader = torch.utils.data.DataLoader(sentences, batch_size=16)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    while len(losses) < steps:
        for batch in loader:
            loss = model(input_ids=batch, labels=batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
    return accelerator.num_processes, losses[0], losses[-1], "HF_TOKEN" in os.environ


with sky.ComputePool(nodes=2) as pool:
    for rank, (world, first, last, has_token) in enumerate(fine_tune(steps=60) @ pool):
        print(f"rank {rank} of {world}: loss {first:.2f} -> {last:.2f}, token {has_token}")
