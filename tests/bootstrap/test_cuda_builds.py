"""Which build of JAX and TensorFlow a machine with GPUs gets: by its driver, unless one is named."""

import pytest

from skyward_nb.bootstrap.cuda_builds import driver_fault, with_cuda


@pytest.mark.parametrize(
    ("asked", "driver", "gets"),
    [
        ("jax", "580.82.07", "jax[cuda13]"),
        ("jax>=0.6", "570.86.15", "jax[cuda12]>=0.6"),
        ("jax==0.7.1", "580.82.07", "jax[cuda12]==0.7.1"),
        ("jax==0.7.*", "580.82.07", "jax[cuda12]==0.7.*"),
        ("jax[k8s]", "590.1", "jax[cuda13,k8s]"),
        ("JAX", "", "JAX[cuda13]"),
        ("jax[cuda12]", "580.82.07", "jax[cuda12]"),
        ("jax[cuda12-local]", "580.82.07", "jax[cuda12-local]"),
        ("jax[cpu]", "580.82.07", "jax[cpu]"),
        ("tensorflow>=2.18", "570.86.15", "tensorflow[and-cuda]>=2.18"),
        ("tensorflow[and-cuda]", "570.86.15", "tensorflow[and-cuda]"),
        ("tensorflow-cpu", "570.86.15", "tensorflow-cpu"),
        ("torch==2.13.0", "570.86.15", "torch==2.13.0"),
        ("git+https://example.org/jax", "570.86.15", "git+https://example.org/jax"),
    ],
)
def test_the_extra_that_brings_cuda(asked, driver, gets):
    assert with_cuda([asked], driver) == (gets,)


def test_a_driver_that_is_too_old_is_told_with_what_is_needed():
    assert driver_fault(["jax", "tensorflow", "numpy"], "470.57.02") == (
        "its NVIDIA driver 470.57.02 is too old for jax and tensorflow on GPUs: install 525 or newer there"
    )
    assert driver_fault(["jax"], "525.60.13") == driver_fault(["torch"], "470.57.02") == ""
    assert driver_fault(["jax"], "") == ""
