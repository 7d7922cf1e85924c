"""Functions and classes of the notebook: one object each, wherever and however often they come."""

import weakref

import pytest

from skyward_nb.pickling import definitions, payload


def test_what_is_a_definition(ns):
    exec(
        "def f():\n    def inner(): pass\n    class Local: pass\n    return inner, Local\n"
        "class C:\n    def m(self): pass\nl = lambda: 0",
        ns,
    )
    inner, local = ns["f"]()
    assert definitions.is_definition(ns["f"]) and definitions.is_definition(ns["C"])
    for other in (inner, local, ns["l"], ns["C"].m, ns["C"](), print, pytest, list, payload.pack):
        assert not definitions.is_definition(other)


def test_a_label_stays_the_objects_own(ns):
    exec("def f(): pass\nclass C: pass", ns)
    first = {name: definitions.label_of(ns[name]) for name in "fC"}
    assert first == {name: definitions.label_of(ns[name]) for name in "fC"}
    assert all(map(definitions.is_label, first.values()))
    old = ns["f"]
    exec("def f(): pass", ns)
    assert definitions.label_of(ns["f"]) != definitions.label_of(old)
    assert not definitions.is_label("f")


def test_values_do_not_depend_on_what_their_class_is_called_now(ns):
    exec("class C: pass\nc = C()", ns)
    before = payload.pack("c", ns["c"], to_ranks=True).digest
    exec("class C:\n    more = 1", ns)
    assert payload.pack("c", ns["c"], to_ranks=True).digest == before


def test_a_function_changed_in_place_is_changed_in_place(ns, rank):
    exec("def f(x): return x + k\nuse = [f]", ns)
    rank.namespace["k"] = 10
    there = rank.take("f", ns["f"])
    assert rank.take("use", ns["use"])[0] is there
    assert there(1) == 11
    exec("def g(x): return x * k", ns)
    ns["f"].__code__ = ns["g"].__code__
    ns["f"].note = "new"
    assert rank.take("f", ns["f"]) is there
    assert there(2) == 20
    assert there.note == "new"


def test_what_a_function_closes_over_changes_with_it(ns, rank, monkeypatch):
    """As of a decorator that keeps what it is given; the rank's functions are not the notebook's here."""
    monkeypatch.setattr(definitions, "_functions", weakref.WeakValueDictionary())
    exec(
        "import functools\n"
        "def scaled(by):\n"
        "    def decorate(f):\n"
        "        @functools.wraps(f)\n"
        "        def wrapped(x): return f(x) * by['k']\n"
        "        return wrapped\n"
        "    return decorate\n"
        "by = {'k': 2}\n"
        "@scaled(by)\ndef g(x): return x",
        ns,
    )
    label = definitions.label_of(ns["g"])
    definitions._functions.pop(label, None)
    there = rank.take("g", ns["g"])
    assert there is not ns["g"] and there(10) == 20
    ns["by"]["k"] = 3
    again = rank.take("g", ns["g"])
    assert again is there and there(10) == 30


def test_there_is_no_definition_that_never_came(rank):
    with pytest.raises(LookupError, match="not on this rank"):
        definitions.defined("def nothing")


def test_what_comes_back_leaves_the_notebooks_class_alone(ns, store):
    exec("class C:\n    seen = 0\n    def m(self): return 1\nc = C()", ns)
    c, kind = ns["c"], ns["C"]
    method = kind.m
    packed = payload.pack("c", c).stow(store)
    kind.seen = 7
    back = payload.unpack(packed, store)
    assert type(back) is kind
    assert kind.seen == 7
    assert kind.m is method
