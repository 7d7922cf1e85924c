"""Files and functions that tracebacks are known by are there: else a hang is not named, or torn code is."""

from pathlib import Path

import pytest
from compat.installed_code import folder_of, is_installed, version

from skyward_nb.node import deferred_interrupt
from skyward_nb.plugins import collectives

PACKAGES = ("jax", "jaxlib", "tensorflow", "tf_keras", "torch")
FRAMES = {
    *collectives._ALIKE,
    *collectives._TENSORFLOW_ENGINE,
    collectives._BACKWARD,
    collectives._LOGGING,
    *((file, function) for file, functions in collectives._COMPUTING for function in functions),
}
PLACES = {
    *collectives._PACKAGES,
    *collectives._BETWEEN,
    *collectives._COMMUNICATION,
    collectives._STRATEGY,
    *collectives._THREADING,
    *deferred_interrupt._UNTORN,
}


def package_of(place: str) -> str:
    return place.strip("/").partition("/")[0]


def there(place: str) -> Path:
    """Where a place would be in its package as it is installed here."""
    package = package_of(place)
    return folder_of(package) / place.strip("/").partition("/")[2]


@pytest.mark.parametrize(
    ("file", "function"), sorted(each for each in FRAMES if package_of(each[0]) in PACKAGES)
)
def test_a_function_is_in_its_file(file, function):
    package = package_of(file)
    if not is_installed(package):
        pytest.skip(f"{package} is not installed")
    path = there(file)
    what = f"{package} {version(package)} has no {file} any more: plugins/collectives.py knows hangs by it"
    assert path.is_file(), what
    if function:
        text = path.read_text()
        assert f"def {function}(" in text, f"{what}, and by its function {function}"


@pytest.mark.parametrize("place", sorted(each for each in PLACES if package_of(each) in PACKAGES))
def test_a_place_is_there(place):
    package = package_of(place)
    if not is_installed(package):
        pytest.skip(f"{package} is not installed")
    assert there(place).exists(), (
        f"{package} {version(package)} has no {place} any more: code is known by it in tracebacks"
    )
