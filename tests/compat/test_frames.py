"""Files and functions that tracebacks are known by are there: else a hang is not named, or torn code is."""

from pathlib import Path

import pytest
from compat.installed_code import folder_of, is_installed, version

from skyward_nb.compat import known_frames

PACKAGES = ("jax", "jaxlib", "tensorflow", "tf_keras", "torch")
FRAMES = {
    *known_frames.ALIKE,
    *known_frames.TENSORFLOW_ENGINE,
    known_frames.BACKWARD,
    known_frames.LOGGING,
    *((file, function) for file, functions in known_frames.COMPUTING for function in functions),
}
PLACES = {
    *known_frames.PACKAGES,
    *known_frames.BETWEEN,
    *known_frames.COMMUNICATION,
    known_frames.STRATEGY,
    *known_frames.THREADING,
    *known_frames.UNTORN,
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
    what = f"{package} {version(package)} has no {file} any more: hangs are known by it (compat/known_frames.py)"
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
