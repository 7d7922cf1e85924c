"""Which build of a framework a machine with NVIDIA GPUs needs, by its driver. Pure.

Plain `jax` and `tensorflow` from an index compute on CPU alone, without a word; their extras bring CUDA. PyTorch's
package has it already. Sources: https://docs.jax.dev/en/latest/installation.html (drivers: 525 for CUDA 12,
580 for CUDA 13), https://www.tensorflow.org/install/pip.
"""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.version import Version

from skyward_nb.bootstrap.requirements import package_name

_CUDA_12, _CUDA_13 = 525, 580
"""The oldest drivers for these."""
_JAX_ON_13 = Version("0.7.2")
"""The first JAX with an extra for CUDA 13."""
_TENSORFLOW_EXTRA = "and-cuda"
_NEED_CUDA = ("jax", "tensorflow")


def with_cuda(pip: Iterable[str], driver: str) -> tuple[str, ...]:
    """These requirements with the extra that brings CUDA, where one is needed and none is named.

    Args:
        pip: requirements as pip reads them; what is no plain requirement stays as it is.
        driver: the version of the machine's NVIDIA driver, such as `580.82.07`.
    """
    return tuple(_with_cuda(text, driver) for text in pip)


def driver_fault(pip: Iterable[str], driver: str) -> str:
    """Why frameworks among these requirements cannot use GPUs with this driver; "" if they can."""
    number = _number(driver)
    asked = {name for text in pip if (name := package_name(text)) in _NEED_CUDA}
    if not asked or number is None or number >= _CUDA_12:
        return ""
    return (
        f"its NVIDIA driver {driver} is too old for {' and '.join(sorted(asked))} on GPUs: "
        f"install {_CUDA_12} or newer there"
    )


def _with_cuda(text: str, driver: str) -> str:
    name = package_name(text)
    if name not in _NEED_CUDA:
        return text
    requirement = Requirement(text)
    extra = _TENSORFLOW_EXTRA if name == "tensorflow" else _jax_extra(requirement, driver)
    if not any(_is_of_a_device(each) for each in requirement.extras):
        requirement.extras = {*requirement.extras, extra}
    return str(requirement)


def _jax_extra(requirement: Requirement, driver: str) -> str:
    number = _number(driver)
    exact = [each.version for each in requirement.specifier if each.operator == "=="]
    is_old = any(Version(each.removesuffix(".*")) < _JAX_ON_13 for each in exact)
    return "cuda12" if is_old or (number is not None and number < _CUDA_13) else "cuda13"


def _is_of_a_device(extra: str) -> bool:
    return any(word in extra for word in ("cuda", "rocm", "tpu", "cpu"))


def _number(driver: str) -> int | None:
    first = driver.partition(".")[0]
    return int(first) if first.isdecimal() else None
