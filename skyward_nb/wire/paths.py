"""Where an object lies inside another one: steps that lead to it, here and on a rank."""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

Step = tuple[str, Any]
Path = tuple[Step, ...]

_KEYS = (str, int, float, bool, bytes, type(None))
_ATOMS = (str, bytes, int, float, complex, bool, type(None), types.ModuleType)
_MOST = 2_000_000


def find_paths(root: object, wanted: Collection[int]) -> dict[int, Path]:
    """Paths from `root` to the objects with the ids `wanted`, as far as steps can lead there."""
    missing = set(wanted)
    found: dict[int, Path] = {}
    seen: set[int] = {id(root)}
    alive: list[object] = []
    todo: deque[tuple[object, Path]] = deque([(root, ())])
    while todo and missing and len(seen) < _MOST:
        value, path = todo.popleft()
        if id(value) in missing:
            missing.discard(id(value))
            found[id(value)] = path
        for step, part in _parts(value):
            if id(part) not in seen and not isinstance(part, _ATOMS):
                seen.add(id(part))
                alive.append(part)  # so that no id is another object's later on
                todo.append((part, (*path, step)))
    return found


def follow(root: object, path: Path) -> object:
    """What lies at `path` in `root`; raises LookupError where the path ends too early."""
    value: Any = root
    for at, (kind, key) in enumerate(path):
        try:
            value = _STEPS[kind](value, key)
        except Exception as error:
            raise LookupError(f"there is no {spell(path[: at + 1])} in it any more") from error
    return value


def spell(path: Path) -> str:
    """A path as a person writes it: `.layers[2].weight`."""
    return "".join(_SPELT[kind](key) for kind, key in path)


def _attribute(value: Any, name: str) -> object:
    own: Any = getattr(value, "__dict__", {})
    return own[name] if name in own else getattr(value, name)


_STEPS = {
    "attribute": _attribute,
    "item": lambda value, key: value[key],
    "cell": lambda value, index: value.__closure__[index],
    "content": lambda value, _: value.cell_contents,
    "storage": lambda value, _: value.untyped_storage(),
}
_SPELT = {
    "attribute": lambda name: f".{name}",
    "item": lambda key: f"[{key!r}]",
    "cell": lambda index: f".__closure__[{index}]",
    "content": lambda _: ".cell_contents",
    "storage": lambda _: ".untyped_storage()",
}


def _parts(value: Any) -> Iterator[tuple[Step, object]]:
    kind = type(value)
    for family, listed in _LISTED:
        if issubclass(kind, family):
            yield from listed(value)
            break
    own = _own(value)
    yield from ((("attribute", name), part) for name, part in own.items())
    for cls in kind.__mro__:
        for name in _slots(cls):
            if name not in own and hasattr(cls, name):
                with contextlib.suppress(AttributeError):
                    yield ("attribute", name), getattr(value, name)
    if kind.__module__.partition(".")[0] == "torch" and hasattr(kind, "untyped_storage"):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            yield ("storage", None), value.untyped_storage()


def _items(value: Any) -> Iterator[tuple[Step, object]]:
    items: list[tuple[Any, object]] = list(dict.items(value))  # not a subclass's own idea of them
    yield from ((("item", key), part) for key, part in items if isinstance(key, _KEYS))


def _elements(value: Any) -> Iterator[tuple[Step, object]]:
    yield from ((("item", index), part) for index, part in enumerate(list(value)))


def _of_function(value: types.FunctionType) -> Iterator[tuple[Step, object]]:
    yield from ((("cell", index), cell) for index, cell in enumerate(value.__closure__ or ()))
    yield from _attributes("__defaults__", "__kwdefaults__")(value)


def _of_cell(value: types.CellType) -> Iterator[tuple[Step, object]]:
    with contextlib.suppress(ValueError):  # empty so far
        yield ("content", None), value.cell_contents


def _of_class(value: type) -> Iterator[tuple[Step, object]]:
    yield from ((("attribute", name), part) for name, part in list(vars(value).items()))


def _attributes(*names: str) -> Callable[[Any], Iterator[tuple[Step, object]]]:
    return lambda value: ((("attribute", name), getattr(value, name)) for name in names)


_LISTED: tuple[tuple[Any, Callable[[Any], Iterator[tuple[Step, object]]]], ...] = (
    (dict, _items),
    ((list, tuple, deque), _elements),
    (types.FunctionType, _of_function),
    (types.CellType, _of_cell),
    (types.MethodType, _attributes("__self__")),
    (functools.partial, _attributes("func", "args", "keywords")),
    (type, _of_class),
)


def _own(value: object) -> dict[str, Any]:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return dict(own) if isinstance(own, dict) else {}


def _slots(cls: type) -> tuple[str, ...]:
    slots: Any = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
