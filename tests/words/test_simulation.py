"""Packages for CUDA and words on what is simulated: values in, values out."""

import pytest

from skyward_nb.options.defaults import Default, for_new_pool
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.providers import local
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.simulation import on_cpu, simulation_notes
from skyward_nb.words.spec import PoolSpec


def spec(line):
    return spec_of(PoolSpec(), parse(line).pool)


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        (["jax[cuda12]"], ("jax",)),
        (["jax[cuda13]>=0.5"], ("jax>=0.5",)),
        (["jax[k8s, cuda12]==0.6"], ("jax[k8s]==0.6",)),
        (["tensorflow[and-cuda]"], ("tensorflow",)),
        (["torch==2.6.0+cu124", "numpy"], ("torch==2.6.0", "numpy")),
        (["torch", "--index-url", "https://download.pytorch.org/whl/cu126"], ("torch",)),
        (["torch --index-url https://download.pytorch.org/whl/cu121"], ("torch",)),
        (
            ["torch", "--extra-index-url=https://download.pytorch.org/whl/nightly/cu128/"],
            ("torch",),
        ),
        (["x", "--index-url", "https://a.b/simple"], ("x", "--index-url https://a.b/simple")),
        (["x", "-i https://a.b/simple"], ("x", "-i https://a.b/simple")),
        (["torch @ https://a.b/torch-2.6+cpu.whl"], ("torch @ https://a.b/torch-2.6+cpu.whl",)),
        (["datasets[audio]", "scikit-learn>=1"], ("datasets[audio]", "scikit-learn>=1")),
    ],
)
def test_packages_for_cuda_are_those_of_the_cpu(asked, there):
    assert on_cpu(Image(pip=asked)).pip == there


def test_what_is_simulated_is_said():
    asked = spec(
        "accelerator=A100:2 simulate framework=torch,jax backend=nccl cpus=8+ memory=32 "
        'pip="jax[cuda12] numpy"'
    )
    cuda, gloo, jax, packages, needs = simulation_notes(asked)
    assert "cuda devices are the CPU; torch.cuda.is_available() says False: simulate=cuda" in cuda
    assert gloo == "simulate: gloo for backend=nccl"
    assert "jax.devices('gpu') finds none" in jax
    assert packages == "simulate: CPU packages for pip=jax[cuda12]"
    assert needs == "simulate: cpus=8+ memory=32 holds for rented machines, not for these"
    assert simulation_notes(asked, spec("framework=torch accelerator=A100 backend=nccl")) == (jax,)
    # A function's decorator asks for NCCL, and torch is there.
    assert simulation_notes(asked, spec("framework=torch,jax accelerator=A100")) == (gloo,)
    assert simulation_notes(spec("nodes=2")) == ()
    own = spec('accelerator=A100 simulate pip="numpy git+https://me:word@a.b/x.git jax[cuda12]"')
    assert simulation_notes(own) == ("simulate: CPU packages for pip=jax[cuda12]",)
    rented = spec("provider=aws accelerator=A100 simulate=cuda framework=torch cpus=8+")
    assert simulation_notes(rented) == (
        "simulate: cuda devices are the CPU; torch says there are some",
    )


def test_backends_and_needs_are_kept_as_asked_and_refused_where_nothing_is_simulated():
    asked = spec("accelerator=A100 simulate framework=torch backend=nccl cpus=8+")
    assert (asked.backend, str(asked.cpus), asked.simulate) == ("nccl", "8+", "yes")
    assert spec("accelerator=A100 simulate=no").simulate == ""
    for line, says in (
        ("cpus=8+", "goes with provider=aws"),
        ("framework=torch backend=nccl", "needs GPUs"),
        ("accelerator=A100 simulate instance_type=p5.4xlarge", "goes with provider=aws"),
        ("accelerator=A100 simulate=gpu", "simulate=gpu: write it alone, or simulate=cuda"),
    ):
        with pytest.raises(OptionError, match=says):
            spec(line)


@pytest.mark.parametrize(
    ("line", "gpus", "simulated"),
    [
        ("accelerator=A100:2", [], True),
        ("accelerator=A100:2", ["NVIDIA A100-SXM4-80GB"], True),
        ("accelerator=A100:2", ["NVIDIA A100-SXM4-80GB"] * 2, False),
        ("nodes=2", [], False),
        ("accelerator=A100 provider=aws", [], False),
        ("accelerator=A100 provider=ssh hosts=a,b", [], False),
        ("accelerator=A100 simulate=no", [], False),
        ("accelerator=A100 simulate", ["NVIDIA A100-SXM4-80GB"], True),
    ],
)
def test_as_a_default_it_counts_where_an_accelerator_is_asked_for_and_missing(
    monkeypatch, line, gpus, simulated
):
    monkeypatch.setattr(local, "gpus", lambda: gpus)
    default = Default("simulate", "1", "SKYWARD_SIMULATE")
    assert bool(for_new_pool(parse(line), [default]).simulate or "") is simulated
