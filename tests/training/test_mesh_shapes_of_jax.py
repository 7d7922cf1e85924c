"""JAX's program of the mesh page: the shape stands on its line, and the losses are the same for each."""

from __future__ import annotations

import pytest
from later import needs
from terminals import sky
from training.conftest import losses


@pytest.mark.extensive
@needs("jax")
def test_each_shape_gives_the_same_losses(no_leaks, program):
    folder = program("jax_mesh")
    found = []
    for shape in ("[4,1]", "[1,4]", "[2,2]"):
        ran = sky(
            "run", "nodes=4", "framework=jax", "run_training.py",
            f'model.mesh_shape=[{shape},["fsdp","tp"]]', folder=folder, timeout=200,
        )  # fmt: skip
        assert ran.code == 0, ran.stderr
        found.append(losses(ran.stdout))
    assert [*found[0]] == [0, 1, 2, 3] and found[0][3] < found[0][0]
    for each in found[1:]:
        assert each == pytest.approx(found[0], abs=1e-3)
