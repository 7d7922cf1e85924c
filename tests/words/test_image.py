"""Images: what they take, what they refuse, and what of them is shown."""

from pathlib import Path

import msgspec
import pytest

from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.spec import PoolSpec


def test_lists_are_taken_and_kept_as_tuples_each_once():
    image = Image(python="3.12", pip=["torch", "torch", " numpy>=2 "], apt=("ffmpeg",))
    assert (image.python, image.pip) == ("3.12", ("torch", "numpy>=2"))
    assert image == Image(python="3.12", pip=("torch", "numpy>=2"), apt=["ffmpeg"])
    assert Image(python="auto") == Image()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"python": 3.12}, "as text, such as '3.12'"),
        ({"python": "three"}, "python='three'"),
        ({"pip": "torch numpy"}, r"takes a list: pip=\['torch numpy'\]"),
        ({"pip": 3}, "not int"),
        ({"pip": ["torch", 2]}, r"2 \(int\) is not one"),
        ({"pip": [" "]}, "is not one"),
        ({"apt": ["--allow-untrusted"]}, "name a package"),
        ({"apt": ["ffmpeg; reboot"]}, "name a package"),
        ({"env": ["A=1"]}, "dict of texts.*not list"),
        ({"env": {"N": 4}}, r"N must be a text, not int: use str\(value\)"),
        ({"env": {"A=B": "x"}}, "not a variable name"),
        ({"includes": "pkg"}, "takes a list"),
        ({"interpreter": "python3.11"}, "give the whole path of a Python on the node"),
        ({"interpreter": 3}, "interpreter=3: give the whole path"),
        ({"interpreter": "/x\n/y"}, "whole path"),
    ],
)
def test_what_it_cannot_be_is_refused_with_what_it_can(options, says):
    with pytest.raises(OptionError, match=says):
        Image(**options)


def test_secrets_are_not_shown():
    image = Image(pip=["x @ https://me:hunter2@host/x.whl"], env={"API_KEY": "hunter2", "B": "b"})
    spec = PoolSpec(image=image, env={"HF_TOKEN": "hunter2"})
    assert "hunter2" not in f"{image!r} {spec!r} {spec}"
    assert "https://***@host/x.whl" in repr(image)
    assert "'B': 'b'" in repr(image)


def test_it_is_the_same_after_a_journey():
    spec = PoolSpec(image=Image(python="3.12", pip=["a"], env={"A": "1"}, includes=["m"]))
    assert msgspec.json.decode(msgspec.json.encode(spec), type=PoolSpec) == spec


def test_a_pools_variables_are_over_those_of_its_image():
    spec = PoolSpec(image=Image(env={"A": "image", "B": "image"}), env={"B": "pool", "C": "pool"})
    assert spec.variables == {"A": "image", "B": "pool", "C": "pool"}


def test_packages_are_added_and_python_replaced():
    image = Image(python="3.11", pip=["a"], env={"A": "1"})
    more = image.having(python="3.12", pip=["b", "a"], apt=["git"])
    assert more == Image(python="3.12", pip=["a", "b"], apt=["git"], env={"A": "1"})
    assert image.lacks(more)
    assert not more.lacks(Image(python="3.12", pip=["b"]))
    assert image.lacks(Image(interpreter="/opt/python"))
    assert Image(interpreter=Path("/opt/python")).having(pip=["a"]).interpreter == "/opt/python"
    assert image.having() == image
