"""The mesh page, in our words: one `run_training` on four ranks along every mesh that it shows."""

from __future__ import annotations

import pytest
from later import needs
from leaks import leaves_nothing

import skyward_nb as sky
from skyward_nb.words.errors import OptionError

pytestmark = [pytest.mark.torch, needs("torch")]
AXES = ["fsdp", "tp"]


@pytest.fixture(scope="module")
def pool():
    with leaves_nothing():
        with sky.Compute(
            nodes=2,
            accelerator="A100:2",
            mesh=[[2, 2], AXES],
            plugins=[sky.plugins.torch()],
            simulate=True,
            quiet=True,
        ) as pool:
            yield pool


def a_model():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 16), torch.nn.Linear(16, 4)
    )


@sky.function
def run_training(mesh_shape=None, micro_batch_size=4, accumulate=1, reduce_dtype=None):
    """Losses of six steps over all data, the share of the weights that a rank has, and its part of the data.

    A step takes the same 16 rows of the whole, whatever the mesh and the size of the micro-batches.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if mesh_shape is None:
        mesh = sky.mesh()
    else:
        sizes, names = mesh_shape
        mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(names))
    model = a_model()
    weights = sum(each.numel() for each in model.parameters())
    model = sky.parallelize(
        model, mesh=mesh, plan={"0": "colwise", "2": "rowwise"}, reduce_dtype=reduce_dtype
    )
    held = sum(getattr(each, "to_local", lambda e=each: e)().numel() for each in model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    y = x[:, :4] - x[:, 4:]
    index, count = sky.data_place(mesh)
    inputs, aims = (each[index::count].split(micro_batch_size) for each in (x, y))
    own = list(zip(inputs, aims, strict=True))
    losses = []
    for _ in range(6):
        total = torch.zeros(())
        for part, aim in own:
            with sky.accumulate(model, every=accumulate, total=len(own)):
                loss = torch.nn.functional.mse_loss(model(part), aim) / len(own)
                loss.backward()
            total += loss.detach()
        dist.all_reduce(total)
        losses.append(total.item() / dist.get_world_size())
        optimizer.step()
        optimizer.zero_grad()
    return losses, held / weights, (index, count)


@pytest.fixture(scope="module")
def hybrid(pool):
    """What the pool's own mesh gives: two by two."""
    return run_training() @ pool


def test_the_hybrid_mesh_is_the_pools_own_and_learns(hybrid):
    assert [part for _, _, part in hybrid] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    losses = hybrid[0][0]
    assert all(each[0] == pytest.approx(losses, abs=1e-5) for each in hybrid)
    assert losses[-1] < 0.9 * losses[0]
    assert all(share < 0.35 for _, share, _ in hybrid)


@pytest.mark.parametrize(("sizes", "parts"), [((4, 1), 4), ((1, 4), 1)])
def test_other_meshes_train_the_same_model_in_parts(pool, hybrid, sizes, parts):
    """FSDP: a quarter of the weights on each; tensor parallel: all data on each."""
    for losses, share, (_, count) in run_training([list(sizes), AXES], 2) @ pool:
        assert losses == pytest.approx(hybrid[0][0], abs=1e-5)
        assert count == parts
        assert share < 0.4


def test_accumulated_gradients_and_smaller_micro_batches_train_the_same(pool, hybrid):
    for losses, _, _ in run_training(micro_batch_size=2, accumulate=4) @ pool:
        assert losses == pytest.approx(hybrid[0][0], abs=1e-5)


def test_gradients_are_averaged_in_bf16_nearly_alike(pool, hybrid):
    losses, _, _ = (run_training(reduce_dtype="bf16") @ pool)[0]
    assert losses == pytest.approx(hybrid[0][0], abs=0.05)
    assert losses != hybrid[0][0]


def test_the_variables_of_every_rank(pool):
    """The page's `export` lines, and its check of rank and world size."""

    @sky.function
    def place():
        import os

        return tuple(os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))

    assert place() @ pool == [(str(rank), "4", str(rank % 2)) for rank in range(4)]


# ── shapes alone ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sizes", "pool_of"),
    [
        ((1, 1), {"accelerator": "A100"}),
        ((4, 1), {"accelerator": "A100:4"}),
        ((1, 4), {"accelerator": "A100:4"}),
        ((2, 2), {"accelerator": "A100:4"}),
        ((8, 1), {"nodes": 2, "accelerator": "A100:4"}),
        ((8, 2), {"nodes": 4, "accelerator": "A100:4"}),
    ],
)
def test_every_printed_mesh_is_one_of_a_pool(sizes, pool_of):
    made = sky.Compute(
        mesh=[list(sizes), AXES], simulate=True, plugins=[sky.plugins.torch()], **pool_of
    )
    assert made.spec.mesh == tuple(zip(AXES, sizes, strict=True))
    assert made.spec.world_size == sizes[0] * sizes[1]


def test_a_mesh_that_does_not_fit_names_both():
    with pytest.raises(OptionError, match=r"8.*4|4.*8"):
        sky.Compute(
            accelerator="A100:4", simulate=True, mesh=[[4, 2], AXES], plugins=[sky.plugins.torch()]
        )
