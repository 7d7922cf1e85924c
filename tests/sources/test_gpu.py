"""What of the sources needs a real GPU: `make gpu` runs it. One GPU is enough for most, two for NCCL between ranks."""

from __future__ import annotations

import re

import pytest
from kernels import kernel
from later import needs
from leaks import leaves_nothing

import skyward_nb as sky
from skyward_nb.providers.local import gpus
from skyward_nb.words.errors import SkyError

pytestmark = pytest.mark.gpu


def here(least=1):
    """How this machine's GPUs are asked for, at most two of them; skips where there are too few."""
    found = gpus()
    if len(found) < least:
        pytest.skip(f"needs {least} NVIDIA GPU{'s' * (least > 1)}, and there are {len(found)}")
    return f"{found[0].split()[1]}:{min(len(found), 2)}"


def of_torch():
    """A rank for each GPU, and NCCL also where there is one rank alone."""
    return {"accelerator": here(), "plugins": [sky.plugins.torch(backend="nccl")], "quiet": True}


@needs("torch")
def test_the_first_program_with_nccl(no_leaks):
    @sky.compute
    def train(epochs):
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(sky.instance_info().rank)
        model = torch.nn.Linear(4, 1).cuda()
        if dist.is_initialized():
            model = DDP(model)
        x = torch.linspace(-1, 1, 256).reshape(64, 4)
        dataset = TensorDataset(x, x.sum(dim=1, keepdim=True))
        sampler = sky.DistributedSampler(dataset, shuffle=True)
        loader = DataLoader(dataset, sampler=sampler, batch_size=16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        weights = [each.tolist() for each in model.parameters()]
        return dist.get_backend(), losses[-1] < 0.2 * losses[0], weights

    with sky.ComputePool(**of_torch()) as pool:
        found = train(epochs=10) @ pool
    assert all(each == ("nccl", True, found[0][2]) for each in found)


@needs("torch")
def test_a_model_sharded_by_fsdp2(no_leaks):
    @sky.function
    def train():
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))
        model.cuda()
        for layer in model[::2]:
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)).cuda()
        losses = []
        for _ in range(20):
            loss = torch.nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        own = model[0].weight.to_local()
        return own.is_cuda, own.shape[0] * dist.get_world_size(), losses[-1] < losses[0]

    with sky.Compute(**of_torch()) as pool:
        assert {*(train() @ pool)} == {(True, 32, True)}


@needs("torch")
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_a_collective_is_cut_and_the_group_formed_again(no_leaks, backend):
    """Two ranks that share a GPU are joined by gloo; NCCL takes one for each."""

    @sky.function
    def fail():
        import torch
        import torch.distributed as dist

        if dist.get_rank() == 1:
            raise ValueError("no data")
        total = torch.ones(1, device="cuda")
        dist.all_reduce(total)
        return total.item()

    @sky.function
    def reduce():
        import torch
        import torch.distributed as dist

        total = torch.ones(1, device="cuda")
        dist.all_reduce(total)
        return total.item()

    word = here(1 + (backend == "nccl"))
    if backend == "gloo":
        word = word.partition(":")[0]
    plugins = [sky.plugins.torch(backend=backend)]
    with sky.Compute(accelerator=word, ranks_per_node=2, plugins=plugins, quiet=True) as pool:
        assert reduce() @ pool == [2.0, 2.0]
        with pytest.raises(ValueError, match="no data"):
            fail() @ pool
        assert reduce() @ pool == [2.0, 2.0]


@needs("torch")
def test_mixed_precision_as_printed(no_leaks):
    @sky.compute
    def train():
        import warnings

        import torch

        warnings.simplefilter("ignore", FutureWarning)
        model = torch.nn.Linear(4, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.cuda.amp.GradScaler()
        with torch.cuda.amp.autocast():
            output = model(torch.ones(2, 4, device="cuda"))
        scaler.scale(output.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return str(output.dtype)

    with sky.ComputePool(**of_torch()) as pool:
        assert {*(train() @ pool)} == {"torch.float16"}


@needs("torch", "transformers", "datasets", "accelerate")
def test_the_trainer_in_fp16(no_leaks, tmp_path):
    @sky.integrations.transformers(backend="nccl")
    @sky.compute
    def fine_tune(folder):
        import torch
        from datasets import Dataset
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

        torch.manual_seed(0)
        rows = [[(3 * i + j) % 32 for j in range(8)] for i in range(32)]
        config = GPT2Config(
            vocab_size=32,
            n_positions=8,
            n_embd=16,
            n_layer=1,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
        args = TrainingArguments(
            output_dir=str(folder), max_steps=8, per_device_train_batch_size=4, fp16=True,
            report_to=[], save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(
            GPT2LMHeadModel(config),
            args,
            train_dataset=Dataset.from_dict({"input_ids": rows, "labels": rows}),
        )
        trainer.train()
        return args.world_size, args.device.type, trainer.state.global_step

    with sky.ComputePool(accelerator=here(), quiet=True) as pool:
        ranks = pool.spec.world_size
        assert fine_tune(tmp_path) @ pool == [(ranks, "cuda", 8)] * ranks


@needs("jax")
def test_jax_sees_the_gpus_of_all_ranks(no_leaks):
    @sky.integrations.jax()
    @sky.compute
    def train():
        import jax
        import jax.numpy as jnp

        own = jnp.arange(float(jax.local_device_count())) + 1
        total = jax.pmap(lambda x: jax.lax.psum(x, "nodes"), axis_name="nodes")(own)
        return jax.default_backend(), jax.device_count(), total.tolist()

    with sky.ComputePool(accelerator=here(), quiet=True) as pool:
        ranks = pool.spec.world_size
        assert train() @ pool == [("gpu", ranks, [float(ranks)])] * ranks


@needs("keras", "jax")
def test_keras_on_jax_trains_one_model_and_the_head_saves_it(no_leaks, tmp_path):
    @sky.integrations.keras(backend="jax")
    @sky.compute
    def train(folder):
        import jax
        import keras
        import numpy as np

        x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
        x, y = sky.shard(x, (x[:, 0] > 0).astype("int32"), shuffle=True, seed=42)
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2, "softmax")])
        model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
        losses = model.fit(x, y, epochs=3, batch_size=16, verbose=0).history["loss"]
        if sky.is_head():
            model.save(folder / "model.keras")
        return jax.default_backend(), losses

    with sky.ComputePool(accelerator=here(), quiet=True) as pool:
        found = train(tmp_path) @ pool
    assert all(each == found[0] for each in found)
    backend, losses = found[0]
    assert backend == "gpu" and losses[-1] < losses[0]
    assert (tmp_path / "model.keras").exists()


@needs("torch")
def test_use_and_memory_of_the_gpu_are_in_the_picture(no_leaks):
    """What `nvidia-smi dmon` tells."""
    word = here()
    pytest.importorskip("pynvml")
    with kernel() as notebook:
        ran = notebook.run(
            f"%%sky_remote accelerator={word} framework=torch\nimport time, torch\n"
            "a = torch.ones(4096, 4096, device='cuda')\nend = time.monotonic() + 6\n"
            "while time.monotonic() < end:\n    b = a @ a\n    torch.cuda.synchronize()",
            timeout=120,
        )
        assert ran.status == "ok", ran.traceback
        assert re.search(r"\d [MG]B of \d+(\.\d)? GB", "\n".join([*ran.live, ran.picture]))


def test_slices_are_ranks_or_it_is_said_what_is_missing(no_leaks):
    """No GPU is cut for it: where it is not cut yet, the error has the words to cut it, or another profile."""

    @sky.compute
    def slot():
        import os

        return os.environ["CUDA_VISIBLE_DEVICES"]

    word = here().partition(":")[0]
    with leaves_nothing():
        try:
            with sky.ComputePool(
                accelerator=word, quiet=True, plugins=[sky.plugins.mig("3g.40gb")]
            ) as pool:
                seen = slot() @ pool
        except SkyError as error:
            said = str(error)
            assert "mig" in said
            assert any(each in said for each in ("nvidia-smi", "partition", "not a profile", "MIG"))
        else:
            assert len({*seen}) == len(seen) == 2
            assert all(each.startswith("MIG-") for each in seen)
