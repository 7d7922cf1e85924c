"""Functions and classes that a notebook's cells define: tracked, so that each stays one object.

In the pickles of other values a definition is only its id. It travels by itself, once, and when
it changes the ranks' own is changed in place: instances that are there get the new methods, and
a value's bytes do not change because the cell of its class was run again.
"""

from __future__ import annotations

import operator
import sys
import types
import uuid
import weakref
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from skyward_nb.compat import cloudpickle_private, jax_private
from skyward_nb.pickling.constant_types import is_constant_type
from skyward_nb.pickling.home_namespace import home
from skyward_nb.pickling.object_table import ObjectMissing

_LABEL = "def "
_INSTALLED = frozenset(("site-packages", "dist-packages"))
_CONSTANTS = {str, bytes, int, float, complex, bool, type(None), type(...)}

_function_ids: weakref.WeakKeyDictionary[types.FunctionType, str] = weakref.WeakKeyDictionary()
_functions: weakref.WeakValueDictionary[str, types.FunctionType] = weakref.WeakValueDictionary()
_filled: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()
_originals: weakref.WeakSet[type] = weakref.WeakSet()
_kept: dict[str, object] = {}


def is_definition(value: object) -> bool:
    """Whether this is a function or class that a cell defined at its top level."""
    # Not isinstance(): that believes what an object says its class is.
    if type(value) is types.FunctionType:
        assert isinstance(value, types.FunctionType)
        return (
            value.__globals__ is home()
            and value.__qualname__.isidentifier()
            and not is_importable(value)
        )
    if not issubclass(type(value), type):
        return False
    assert isinstance(value, type)
    return (
        "<" not in value.__qualname__
        and value.__module__ == home().get("__name__")
        and not is_importable(value)
    )


def is_importable(value: types.FunctionType | type | types.ModuleType) -> bool:
    """Whether it is a module, or what its module has under its name: cloudpickle's rule.

    It is asked of all that is packed, so that the two common answers are given at once.
    """
    if isinstance(value, types.ModuleType):
        return cloudpickle_private.is_by_reference(value)
    module = value.__module__
    if module == "__main__":
        return False
    if type(module) is str and not cloudpickle_private.by_value_modules:
        there = getattr(sys.modules.get(module), "__dict__", None)
        if type(there) is dict and there.get(value.__qualname__) is value:
            return True
    return cloudpickle_private.is_by_reference(value)


def uses_its_module(func: types.FunctionType) -> bool:
    """Whether a function of an installed package reads what its module holds, and not only what others have.

    A copy of that would not be the module's own; much of it, such as caches, cannot even be copied.
    """
    module = sys.modules.get(func.__globals__.get("__name__", ""))
    if module is None or vars(module) is not func.__globals__ or not is_importable(module):
        return False
    if _INSTALLED.isdisjoint(PurePath(getattr(module, "__file__", None) or "").parts):
        return False
    read = cloudpickle_private.globals_read(func.__code__)
    return any(_is_held(func.__globals__[name]) for name in read if name in func.__globals__)


def _is_held(value: object) -> bool:
    if type(value) is types.FunctionType or issubclass(type(value), type):
        assert isinstance(value, types.FunctionType | type)
        return not is_importable(value)
    return not is_constant_type(type(value))


def label_of(value: object) -> str:
    """The label that a definition has for as long as it lives."""
    if isinstance(value, type):
        if value not in _filled:
            # It is the original: what comes back must not be filled into it.
            _originals.add(value)
        return _LABEL + cloudpickle_private.class_id(value)
    assert isinstance(value, types.FunctionType)
    known = _function_ids.get(value)
    if known is None:
        known = uuid.uuid4().hex
        _function_ids[value] = known
        _functions[known] = value
    return _LABEL + known


def is_label(text: str) -> bool:
    """Whether a label is a definition's, and not a name's."""
    return text.startswith(_LABEL)


def parts_of(func: types.FunctionType) -> tuple[object, ...]:
    """The parts of a function but its closure and attributes: code, defaults, annotations."""
    keywords = func.__kwdefaults__ or {}
    fixed = (func.__code__, func.__defaults__, func.__module__, func.__name__, func.__qualname__)
    more = (*keywords, *keywords.values(), *func.__annotations__, *func.__annotations__.values())
    return (*fixed, func.__doc__, len(keywords), *more)


def is_constant(func: types.FunctionType) -> bool:
    """Whether a function cannot change but for getting other parts."""
    return _has_only_parts(func) and all(map(_is_constant, parts_of(func)[1:]))


def is_made_of(func: types.FunctionType, parts: tuple[object, ...]) -> bool:
    """Whether these are its very parts, and all there is to it."""
    now = parts_of(func)
    return len(now) == len(parts) and all(map(operator.is_, now, parts)) and _has_only_parts(func)


def _has_only_parts(func: types.FunctionType) -> bool:
    return func.__closure__ is None and not func.__dict__


def _is_constant(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    if issubclass(type(value), type):
        assert isinstance(value, type)
        return is_importable(value)
    return type(value) in _CONSTANTS


def let_go(labels: Iterable[str]) -> None:
    """The notebook has these definitions no more: what still uses them keeps them itself."""
    for label in labels:
        _kept.pop(label, None)


def keep(label: str, value: object) -> None:
    """Hold a definition that came, so that values that come later find it."""
    _kept[label] = value


# ── what pickles call when they are read ────────────────────────────────────────────────


def defined(label: str) -> object:
    """The definition that came under this label; raises `ObjectMissing` when none did."""
    found = _kept.get(label)
    if found is None:
        raise ObjectMissing(f"its definition {label!r} is not on this rank")
    return found


def make_function(label: str, *args: Any) -> types.FunctionType:
    """A function of the notebook, or the one that came under this label before."""
    there = _functions.get(label)
    made: types.FunctionType = cloudpickle_private.make_function(*args)
    if there is None or len(there.__code__.co_freevars) != len(made.__code__.co_freevars):
        _functions[label] = made
        return made
    there.__code__ = made.__code__
    return there


def teller_of_subclasses(bases: Iterable[type]) -> type | None:
    """Of these bases' classes the one that is told of a subclass, if what it does then travels with the subclass.

    So it is of the notebook's own, and of those by which flax knows fields, which a class that is made has not yet.
    """
    classes = (each for base in bases for each in type.mro(base))
    told = next((each for each in classes if "__init_subclass__" in vars(each)), object)
    is_flax = (told.__module__, told.__name__) == ("flax.struct", "PyTreeNode")
    return told if is_flax or is_definition(told) else None


def make_class(constructor: type, name: str, bases: tuple[type, ...], *rest: Any) -> type:
    """Make a class without its attributes and without a word to its bases, which have been told where it is from."""
    told = teller_of_subclasses(bases)
    if told is None:
        return cloudpickle_private.make_class(constructor, name, bases, *rest)
    hook = vars(told)["__init_subclass__"]
    type.__setattr__(told, "__init_subclass__", classmethod(lambda _, **__: None))
    try:
        return cloudpickle_private.make_class(constructor, name, bases, *rest)
    finally:
        type.__setattr__(told, "__init_subclass__", hook)


def fill_class(
    cls: type, state: tuple[bool, tuple[dict[str, Any], dict[str, Any]], *tuple[Any, ...]]
) -> type:
    """Fill a class that was just made; one that was there only if this is its own arrival.

    What an earlier arrival brought and this one does not is taken away. The state ends with how JAX takes objects
    of the class apart, if it knows that.
    """
    update, (attributes, slots), *as_tree = state
    before = _filled.get(cls)
    if cls in _originals or (before is not None and not update):
        return cls
    for name in (before or frozenset()) - attributes.keys():
        if name in vars(cls):
            delattr(cls, name)
    _filled[cls] = frozenset(attributes)
    filled = cloudpickle_private.fill_class(cls, (attributes, slots))
    for way in as_tree:
        jax_private.take_apart(cls, way)
    return filled
