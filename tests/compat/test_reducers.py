"""cloudpickle takes functions and classes apart as `pickling/pickler` does after it: what it forgot would be lost."""

import io

import cloudpickle

from skyward_nb.compat import cloudpickle_private

_OURS = f"pickling/pickler.py does as cloudpickle does, and that has changed with {cloudpickle.__version__}"
_SLOTS = {
    "__name__", "__qualname__", "__annotations__", "__kwdefaults__", "__defaults__", "__module__",
    "__doc__", "__closure__", "_cloudpickle_submodules", "__globals__",
}  # fmt: skip
"""What `Pickler._by_value` says of a function."""


def _function(place=1):
    def inner(x: int = 2, *, y: int = 3) -> int:
        """Adds."""
        return x + y + place

    inner.note = "kept"
    return inner


def _taken_apart(function):
    return cloudpickle_private.take_function_apart(cloudpickle.Pickler(io.BytesIO()), function)


def test_a_function_has_the_parts_that_are_known():
    function = _function()
    make, args, (state, slots), *rest = _taken_apart(function)
    assert make is cloudpickle_private.make_function, _OURS
    assert rest == [None, None, cloudpickle_private.fill_function], _OURS
    code, _globals, name, defaults, cells = args
    assert (code, name, defaults) == (function.__code__, None, None), _OURS
    assert cells is None or len(cells) == len(function.__closure__)
    assert set(slots) == _SLOTS, _OURS
    assert cloudpickle_private.SUBMODULES in slots
    assert state == {"note": "kept"}


def test_a_function_is_made_of_them():
    made = cloudpickle_private.make_function(
        _function().__code__, {}, None, None, _function(5).__closure__
    )
    state = {"note": "kept"}, {
        **dict.fromkeys(_SLOTS - {"__closure__", "__globals__"}),
        "__name__": "made", "__qualname__": "made", "__annotations__": {}, "__module__": "__main__",
        "__defaults__": (2,), "__kwdefaults__": {"y": 3}, "_cloudpickle_submodules": [],
        "__closure__": None, "__globals__": {},
    }  # fmt: skip
    cloudpickle_private.fill_function(made, state)
    assert (made(), made.note, made.__name__) == (10, "kept", "made"), _OURS


def test_a_class_has_the_parts_that_are_known():
    kind = type("Kind", (dict,), {"size": 3, "__module__": "__main__"})
    reduced = cloudpickle_private.take_class_apart(kind)
    assert len(reduced) == 6, _OURS
    make, args, (attributes, slots), *rest = reduced
    assert make is cloudpickle_private.make_class, _OURS
    assert rest == [None, None, cloudpickle_private.fill_class], _OURS
    metaclass, name, bases, keywords, label, _more = args
    assert (metaclass, name, bases, keywords) == (
        type,
        "Kind",
        (dict,),
        {"__module__": "__main__"},
    ), _OURS
    assert label == cloudpickle_private.class_id(kind)
    assert attributes["size"] == 3
    assert slots == {}
    # The label is known here: what is made is the class that there is.
    assert make(*args) is kind, _OURS


def test_cells_and_modules():
    empty = cloudpickle_private.make_cell()
    empty.cell_contents = 1
    assert cloudpickle_private.cell_contents(empty) == 1
    assert cloudpickle_private.is_by_reference(cloudpickle)
    assert not cloudpickle_private.is_by_reference(_function())
    assert not cloudpickle_private.by_value_modules
    cloudpickle.register_pickle_by_value(cloudpickle)
    try:
        assert cloudpickle_private.by_value_modules == {"cloudpickle"}, _OURS
    finally:
        cloudpickle.unregister_pickle_by_value(cloudpickle)
    assert "_SLOTS" in cloudpickle_private.globals_read(test_a_function_is_made_of_them.__code__)
