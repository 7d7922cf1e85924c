"""`mesh=` of a pool: what `sky.parallelize` spreads a notebook's own model over."""

from __future__ import annotations

import pytest
from kernels import ready
from later import needs
from runtime.tiny_model import MODEL

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]


@pytest.mark.extensive
def test_the_option_line_says_the_mesh(pytestconfig):
    """One rank, and four that share its work, give what a notebook does that has no pool."""
    train = "\nmodel = sky.parallelize(made(Tiny))\nlosses = train(model, sky.data_place())\n"
    gives = "losses, sky.full_state(model), sky.data_place()"
    pools = [("four", 4, "fsdp:2,tp:2")]
    pools += [("one", 1, "fsdp:1,tp:1")] * pytestconfig.getoption("--all")
    with ready(f"{MODEL}{train}one = [({gives})]") as notebook:
        for pool, nodes, axes in pools:
            line = f"%%sky_remote pool={pool} nodes={nodes} framework=torch grace=20s mesh={axes} push=none out={pool}\n"
            ran = notebook.run(f"{line}{MODEL}{train}{gives}", 120)
            assert ran.status == "ok", ran.traceback
        compare = (
            "(one, weights, _), (four, whole, _) = one[0], four[0]\n"
            "(max(abs(a - b) for a, b in zip(one, four)) < 1e-4,\n"
            " max((whole[k].float() - weights[k].float()).abs().max().item() for k in weights) < 1e-4)"
        )
        places = notebook.run("[each[2] for each in four]")
        assert places.result == "[(0, 2), (0, 2), (1, 2), (1, 2)]"
        assert notebook.run(compare).result == "(True, True)"
        # A model of the notebook's own class comes home as one that computes and trains.
        ran = notebook.run("%%sky_remote pool=four pull=model\nNone")
        assert ran.status == "ok", ran.traceback
        assert notebook.run("model = made(Tiny)").status == "ok"
        ran = notebook.run(
            "%%sky_remote pool=four out=home\nmodel = sky.parallelize(model)\ntrain(model, sky.data_place(), 3)\nmodel"
        )
        assert ran.status == "ok", ran.traceback
        ran = notebook.run("home = home[0]\ntype(home) is Tiny, train(home, steps=3)[-1] < 3.5")
        assert ran.result == "(True, True)", ran.traceback
        # A process group that was cut goes on, and so does its mesh; new ranks have one of their own.
        count = "import torch, torch.distributed as dist, skyward_nb as sky\nbefore = sky.mesh()\n"
        assert notebook.run(f"%%sky_remote pool=four\n{count}None").status == "ok"
        fails = "if sky.is_head(): raise RuntimeError('alone')\ndist.barrier()"
        assert "alone" in notebook.run(f"%%sky_remote pool=four\n{fails}").traceback
        summed = "one = torch.ones(1)\ndist.all_reduce(one, group=sky.mesh()['tp'].get_group())\n"
        ran = notebook.run(f"%%sky_remote pool=four\n{summed}sky.mesh() is before, one.item()")
        assert ran.result == "[0-3] (True, 2.0)", ran.traceback
        assert notebook.run("%sky restart pool=four").status == "ok"
        ran = notebook.run(f"%%sky_remote pool=four\n{count}{summed}one.item()")
        assert ran.result == "[0-3] 2.0", ran.traceback
        wrong = notebook.run("%%sky_remote pool=other nodes=4 framework=torch mesh=fsdp:3,tp:2\n1")
        assert "3·2 = 6" in wrong.traceback + wrong.stderr + wrong.stdout
        assert "4 ranks" in wrong.traceback + wrong.stderr + wrong.stdout
