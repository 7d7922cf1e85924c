"""Paths to objects in objects: found, followed, spelt."""

import functools
from collections import OrderedDict, deque

import pytest

from skyward_nb.wire.paths import find_paths, follow, spell


class Thing:
    def __init__(self, **own):
        self.__dict__.update(own)


class Slotted:
    __slots__ = ("held",)


def closure(value):
    return lambda: value


def default(value):
    def f(a=value): ...

    return f


def slotted(value):
    made = Slotted()
    made.held = value
    return made


CASES = {
    "itself": (lambda o: o, ""),
    "in a list": (lambda o: [0, o], "[1]"),
    "in a dict": (lambda o: {"a": {2: o}}, "['a'][2]"),
    "in an ordered dict": (lambda o: OrderedDict(a=o), "['a']"),
    "in a tuple in a deque": (lambda o: deque([(1, o)]), "[0][1]"),
    "an attribute": (lambda o: Thing(x=Thing(y=o)), ".x.y"),
    "in a slot": (slotted, ".held"),
    "closed over": (closure, ".__closure__[0].cell_contents"),
    "a default": (default, ".__defaults__[0]"),
    "of a bound method": (lambda o: Thing(o=o).__init__, ".__self__.o"),
    "in a partial": (lambda o: functools.partial(print, key=o), ".keywords['key']"),
    "of a class": (lambda o: type("C", (), {"held": o}), ".held"),
}


@pytest.mark.parametrize("case", CASES)
def test_found_followed_and_spelt(case):
    make, text = CASES[case]
    wanted = ["wanted"]
    root = make(wanted)
    paths = find_paths(root, {id(wanted)})
    assert spell(paths[id(wanted)]) == text
    assert follow(root, paths[id(wanted)]) is wanted


def test_circles_end_and_what_is_not_there_is_not_found():
    ring = []
    ring.append({"ring": ring})
    assert find_paths(ring, {id(object())}) == {}


def test_the_shortest_path_wins():
    wanted = []
    assert find_paths({"a": {"b": wanted}, "c": wanted}, {id(wanted)})[id(wanted)] == (
        ("item", "c"),
    )


def test_a_path_that_ends_too_early_says_where():
    path = (("attribute", "x"), ("item", 3))
    with pytest.raises(LookupError, match=r"there is no \.x\[3\] in it"):
        follow(Thing(x=[1]), path)
    with pytest.raises(LookupError, match=r"there is no \.x in it"):
        follow(Thing(), path)


def test_a_storage_of_a_tensor():
    torch = pytest.importorskip("torch")
    base = torch.zeros(4)
    paths = find_paths({"t": base}, {id(base.untyped_storage())})
    (path,) = paths.values()
    assert follow({"t": base}, path) is base.untyped_storage()
