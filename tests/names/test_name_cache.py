"""What need not be packed again, and what is not kept alive for that."""

import gc
import json
import math
import sys
import types
import weakref

import pytest

from skyward_nb.names.name_cache import NameCache
from skyward_nb.pickling.definitions import label_of
from skyward_nb.pickling.payload import pack

CODE = "class C: pass\ndef f(a=1): return a\ndef g(a=[1]): return a"


@pytest.fixture
def before():
    return NameCache()


def keep(before, name, value):
    before.keep(name, value, pack(name, value, to_ranks=True))


@pytest.mark.parametrize("value", [1, 2.5, None, True, "text", math, json.dumps, json.JSONEncoder])
def test_constants_and_references_are_known_again(before, value):
    keep(before, "x", value)
    found = before.find("x", value)
    assert found is not None
    assert found.digest == pack("x", value, to_ranks=True).digest
    assert before.find("y", value) is None
    assert before.find("x", object()) is None
    before.forget("x")
    assert before.find("x", value) is None


@pytest.mark.parametrize(
    "value", [[1], {}, (1,), "long" * 1000, len, object(), types.ModuleType("nowhere")]
)
def test_what_may_change_or_is_large_is_packed_anew(before, value):
    keep(before, "x", value)
    assert before.find("x", value) is None


def test_an_equal_value_of_another_type_is_another(before):
    keep(before, "x", 1)
    assert before.find("x", True) is None
    assert before.find("x", 1.0) is None


@pytest.mark.parametrize("name", ["C", "f", "g"])
def test_a_name_of_a_definition_needs_that_definition(before, home_namespace, name):
    exec(CODE, home_namespace)
    value = home_namespace[name]
    keep(before, name, value)
    found = before.find(name, value)
    assert found is not None
    assert found.definitions == {label_of(value): value}


def test_a_definition_is_known_by_its_parts_if_none_can_change(before, home_namespace):
    exec(CODE, home_namespace)
    for name, known in {"f": True, "g": False, "C": False}.items():
        value = home_namespace[name]
        label = label_of(value)
        before.keep(label, value, pack(name, value, to_ranks=True, roots=(value,)))
        assert (before.find(label, value) is not None) == known
    f = home_namespace["f"]
    f.__defaults__ = (2,)
    assert before.find(label_of(f), f) is None


def test_what_its_module_has_no_more_is_packed_anew(before, monkeypatch):
    dumps = json.dumps
    keep(before, "dumps", dumps)
    monkeypatch.setattr(json, "dumps", None)
    assert before.find("dumps", dumps) is None


def test_nothing_but_constants_is_kept_alive(before, home_namespace, monkeypatch):
    exec(CODE, home_namespace)
    module = types.ModuleType("sky_t_module")
    monkeypatch.setitem(sys.modules, "sky_t_module", module)
    values = [home_namespace.pop("C"), home_namespace.pop("f"), module]
    for number, value in enumerate(values):
        keep(before, f"x{number}", value)
    f = values[1]
    before.keep(label_of(f), f, pack("f", f, to_ranks=True, roots=(f,)))
    gone = [weakref.ref(value) for value in values]
    monkeypatch.undo()
    del module, value, values, f
    gc.collect()
    assert [each() for each in gone] == [None] * 3
