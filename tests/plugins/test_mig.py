"""MIG on real ranks, with a tool that plays NVIDIA's: each has a slice; none is cut unasked."""

from __future__ import annotations

import os
import signal

import pytest
from gpus import Nvidia, gpu
from kernels import kernel, ready
from leaks import gone_within

from skyward_nb.options.specs import spec_of
from skyward_nb.plugins.plugin_table import find_plugin, uses_of
from skyward_nb.providers.folders import sweep
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import OptionError
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec

A100 = {"accelerator": Accelerator("A100")}
SEEN = (
    "import os, skyward_nb as sky\ni = sky.instance_info()\n"
    "os.environ['CUDA_VISIBLE_DEVICES'], i.accelerators, os.environ['LOCAL_RANK']"
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        yield Nvidia(tmp_path_factory.mktemp("nvidia"), patched)


@pytest.fixture
def nvidia(machine):
    """NVIDIA's tool, which knows of no GPU yet and was asked for nothing."""
    machine.have()
    return machine


@pytest.fixture(scope="module")
def running(machine):
    with ready() as made:
        yield made


@pytest.fixture
def notebook(running, no_leaks):
    yield running
    assert running.run("%sky down all").status == "ok"


def test_the_variable_is_the_slice_of_the_ranks_slot():
    mig = find_plugin("mig")
    options = {"profile": "3g.40gb", "accelerator": "A100", "devices": "MIG-a,MIG-b"}
    assert mig.env(InstanceInfo(local_rank=1), options) == {
        "CUDA_VISIBLE_DEVICES": "MIG-b",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    }
    # What it is before the agent has looked.
    assert mig.env(InstanceInfo(), {"profile": "3g.40gb", "accelerator": "A100"}) == {}


def test_mig_is_readied_first_and_not_where_it_is_simulated():
    spec = spec_of(PoolSpec(), PoolOptions(**{**A100, "mig": "3g.40gb", "framework": ("torch",)}))
    mig, torch = uses_of(spec)
    assert (mig.name, torch.name) == ("mig", "torch")
    assert mig.options == {"profile": "3g.40gb", "accelerator": "A100"}
    simulated = spec_of(PoolSpec(), PoolOptions(**{**A100, "mig": "3g.40gb", "simulate": "yes"}))
    assert uses_of(simulated) == ()
    assert simulated.world_size == 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"mig": "3g.40gb"}, "needs accelerator="),
        ({"partition": True}, "needs mig="),
        ({**A100, "mig": "3g.41gb"}, r"3g\.40gb \(2\)"),
        ({**A100, "mig": "3g.40gb", "ranks_per_node": 3}, "cut into 2 × 3g.40gb"),
        ({**A100, "mig": "3g.40gb", "ranks_per_node": 3, "simulate": "yes"}, "2 × 3g.40gb"),
        ({**A100, "mig": "3g.40gb", "env": {"CUDA_VISIBLE_DEVICES": "0"}}, "each its slice"),
    ],
)
def test_what_does_not_go_together_is_refused(asked, says):
    with pytest.raises(OptionError, match=says):
        spec_of(PoolSpec(), PoolOptions(**asked))


@pytest.mark.parametrize(
    ("backend", "formed"), [("auto", "gloo"), ("gloo", "gloo"), ("nccl", "nccl")]
)
def test_torch_joins_slices_by_gloo_unless_it_is_told_otherwise(backend, formed):
    asked = {**A100, "mig": "3g.40gb", "framework": ("torch",), "backend": backend}
    _, torch = uses_of(spec_of(PoolSpec(), PoolOptions(**asked)))
    assert torch.options["backend"] == formed


@pytest.mark.parametrize("more", [{}, {"simulate": "yes"}, {"ranks_per_node": 1}])
def test_jax_has_one_device_a_rank(more):
    asked = {**A100, "mig": "3g.40gb", "framework": ("jax",), **more}
    jax = uses_of(spec_of(PoolSpec(), PoolOptions(**asked)))[-1]
    assert jax.options["devices"] == "1"


def test_fewer_ranks_than_slices_may_be_asked_for():
    assert (
        spec_of(
            PoolSpec(), PoolOptions(**{**A100, "mig": "1g.10gb", "ranks_per_node": 2})
        ).world_size
        == 2
    )


def test_each_rank_sees_its_own_slice(nvidia, notebook):
    nvidia.have(gpu(0, "3g.40gb", "1g.10gb", "3g.40gb"))
    ran = notebook.run(f"%%sky_remote accelerator=A100 mig=3g.40gb\n{SEEN}")
    assert ran.result.splitlines() == [
        "[0] ('MIG-00000001-slice', 2, '0')",
        "[1] ('MIG-00000003-slice', 2, '1')",
    ], ran.traceback
    assert "A100 cut into 3g.40gb" in notebook.run("%sky status").stdout
    assert notebook.run("%sky restart").status == "ok"
    assert "MIG-00000003-slice" in notebook.run(f"%%sky_remote\n{SEEN}").result
    assert nvidia.asked() == []


def test_mig_that_is_off_is_told_before_anything_is_started(nvidia, notebook):
    nvidia.have(gpu(0, mig="Disabled"))
    ran = notebook.run("%%sky_remote accelerator=A100 mig=3g.40gb\n1")
    assert ran.error[0] == "AcceleratorError"
    assert "sudo nvidia-smi -i 0 -mig 1" in ran.traceback
    assert "sudo nvidia-smi mig -i 0 -cgi 3g.40gb,3g.40gb -C" in ran.traceback
    assert "reset" in ran.traceback
    assert "no pool is up" in notebook.run("%sky status").stdout
    assert nvidia.asked() == []


def test_slices_that_are_gone_at_a_restart_are_told(nvidia, notebook):
    nvidia.have(gpu(0, "3g.40gb", "3g.40gb"))
    assert notebook.run("%sky up accelerator=A100 mig=3g.40gb").status == "ok"
    nvidia.have(gpu(0))
    ran = notebook.run("%sky restart")
    assert ran.error[0] == "StartError"
    assert "mig -i 0 -cgi 3g.40gb,3g.40gb -C" in ran.traceback


@pytest.mark.extensive
def test_a_gpu_is_cut_while_the_pool_lives(nvidia, no_leaks):
    nvidia.have(gpu(0, mig="Disabled"))
    with kernel() as notebook:
        line = "accelerator=A100 mig=3g.40gb partition"
        ran = notebook.run(f"%%sky_remote {line}\n{SEEN}")
        assert ran.status == "ok", ran.traceback
        assert nvidia.profiles == [["3g.40gb", "3g.40gb"]]
        assert notebook.run("%sky restart").status == "ok"
        assert notebook.run("%sky down").status == "ok"
        assert nvidia.profiles == [None]
        assert "reset" not in str(nvidia.asked())
        # A kernel that is shut down puts it together, too.
        assert notebook.run(f"%sky up {line}").status == "ok"
    # Front ends kill a kernel that takes long; the agent goes on.
    assert not gone_within(60, no_leaks)
    assert nvidia.profiles == [None]


def test_the_tools_refusal_ends_the_start_and_leaves_the_gpu_as_it_was(nvidia, notebook):
    nvidia.have(gpu(0, mig="Disabled"), refuses={"mig 1": "Insufficient Permissions"})
    ran = notebook.run("%sky up accelerator=A100 mig=3g.40gb partition")
    assert ran.error[0] == "StartError"
    assert "Unable to enable MIG Mode for GPU" in ran.traceback
    assert "Insufficient Permissions" in ran.traceback
    assert "sudo nvidia-smi -i 0 -mig 1" in ran.traceback
    assert nvidia.profiles == [None]


@pytest.mark.extensive
def test_what_a_killed_agent_has_cut_is_put_together_by_the_next(nvidia, make, no_leaks):
    nvidia.have(gpu(0, mig="Disabled"))
    pool = make(nodes=1, mig="3g.40gb", partition=True, **A100)
    assert nvidia.profiles == [["3g.40gb", "3g.40gb"]]
    agent = pool.context.generations.machines[0]._agent
    os.kill(agent.pid, signal.SIGKILL)
    agent.wait()
    assert sweep()
    assert nvidia.profiles == [None]


def test_gpus_that_are_cut_already_are_not_cut_anew(nvidia):
    from skyward_nb.providers.local import LocalProvider
    from skyward_nb.words.errors import AcceleratorError

    nvidia.have(gpu(0, "1g.10gb"))
    spec = PoolSpec(mig="3g.40gb", partition=True, **A100)
    with pytest.raises(AcceleratorError, match=r"is cut into 1 × 1g\.10gb"):
        LocalProvider().check(spec)
    nvidia.have(gpu(0, mig="Disabled"))
    LocalProvider().check(spec)
