"""Modules of the user's project on a rank: imported from the notebook's source, renewed in place."""

from __future__ import annotations

import abc
import contextlib
import enum
import gc
import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CellType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, cast

from skyward_nb.protocol.commands import ModuleFile


class ProjectFinder(MetaPathFinder, Loader):
    """Finds modules among the sources that came, before any path is searched."""

    def __init__(self) -> None:
        self._files: dict[str, ModuleFile] = {}

    def renew(self, files: Iterable[ModuleFile]) -> None:
        """Take new sources; imported modules are renewed in place. Raises what a module raises; it is unchanged then."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for file in files:
            before = self._files.get(file.name)
            if before == file:
                continue
            self._files[file.name] = file
            module = sys.modules.get(file.name)
            if before is None or module is None:
                continue
            try:
                renew(module)
            except BaseException as error:
                self._files[file.name] = before
                error.add_note(
                    f"while {file.name} ({file.path}), which was edited, was loaded anew"
                )
                raise

    def tops(self) -> tuple[str, ...]:
        """The top-level modules whose sources came."""
        return tuple(sorted({name.partition(".")[0] for name in self._files}))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module whose source came."""
        file = self._files.get(fullname)
        if file is None:
            return None
        spec = ModuleSpec(fullname, self, origin=file.path, is_package=file.is_package)
        spec.has_location = True
        if file.is_package:
            # Compiled modules, which do not travel, may be there.
            spec.submodule_search_locations = [str(Path(file.path).parent)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own kind of module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's source in it."""
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - that is importing

    def get_code(self, fullname: str) -> CodeType:
        """The module's code."""
        file = self._files[fullname]
        return compile(file.text, file.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str | None:
        """The module's text, which tracebacks show."""
        file = self._files.get(fullname)
        return file.text if file is not None else None


# ── a module loaded anew ────────────────────────────────────────────────────────────────

_NOT_THE_CLASSS_OWN = ("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl")
_OF_FUNCTIONS = ("__defaults__", "__kwdefaults__", "__annotations__", "__doc__")


def renew(module: ModuleType) -> None:
    """Run a module's source again; its functions and classes stay the same objects, with new content.

    If that is impossible (other bases, other slots, other members of an enumeration), the new one takes
    the place. Raises what the source raises; the module is unchanged then.
    """
    before = dict(vars(module))
    own = {name: value for name, value in before.items() if _is_own(value, module)}
    for name in own:
        delattr(module, name)
    try:
        importlib.reload(module)
    except BaseException:
        vars(module).clear()
        vars(module).update(before)
        raise
    stayed: dict[Any, Any] = {}
    for name, old in own.items():
        new = vars(module).get(name)
        if (
            new is not None
            and new is not old
            and _is_own(new, module)
            and _put_into(old, new, stayed)
        ):
            setattr(module, name, old)
            stayed[new] = old
    for new, old in stayed.items():
        _redirect(new, old, stayed)


def _is_own(value: object, module: ModuleType) -> bool:
    is_code = isinstance(value, FunctionType | type)
    return is_code and getattr(value, "__module__", None) == module.__name__


def _put_into(old: Any, new: Any, stayed: Mapping[Any, Any]) -> bool:
    """Give `old` the content of `new`; False if that is impossible. `stayed`: old objects, by new ones."""
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        return _put_into_function(old, new)
    if isinstance(old, type) and type(old) is type(new):
        return _put_into_class(old, new, stayed)
    return False


def _put_into_function(old: FunctionType, new: FunctionType) -> bool:
    if old.__closure__ or new.__closure__:
        return False
    old.__code__ = new.__code__
    for name in _OF_FUNCTIONS:
        setattr(old, name, getattr(new, name))
    old.__dict__.clear()
    old.__dict__.update(new.__dict__)
    return True


def _put_into_class(old: type, new: type, stayed: Mapping[Any, Any]) -> bool:
    bases = tuple(stayed.get(base, base) for base in new.__bases__)
    slots = [vars(cls).get("__slots__") for cls in (old, new)]
    if old.__bases__ != bases or slots[0] != slots[1]:
        return False
    if isinstance(old, enum.EnumMeta):
        return _put_into_enum(cast("type[enum.Enum]", old), cast("type[enum.Enum]", new))
    for name in vars(old).keys() - vars(new).keys():
        if name not in _NOT_THE_CLASSS_OWN:
            delattr(old, name)
    for name, value in list(vars(new).items()):
        if name in _NOT_THE_CLASSS_OWN or isinstance(value, MemberDescriptorType):
            continue
        there = vars(old).get(name)
        if isinstance(value, type) and isinstance(there, type) and _put_into(there, value, stayed):
            continue  # a class within the class
        _say_whose_it_is(value, old, new)
        setattr(old, name, value)
    abc.update_abstractmethods(old)
    return True


def _put_into_enum(old: type[enum.Enum], new: type[enum.Enum]) -> bool:
    """Renew the methods of an enumeration; False if its members differ."""
    if {each.name: each.value for each in old} != {each.name: each.value for each in new}:
        return False
    for name, value in list(vars(new).items()):
        if isinstance(value, FunctionType | property | classmethod | staticmethod):
            type.__setattr__(old, name, value)
    return True


def _redirect(new: Any, old: Any, stayed: Mapping[Any, Any]) -> None:
    """Have objects of the new source, such as a table of classes, refer to the one that stayed."""
    for holder in gc.get_referrers(new):
        if holder is not stayed and holder is not vars(old):
            _point(holder, new, old)


def _point(holder: Any, new: Any, old: Any) -> None:
    """Have one object refer to `old`. Apart from the search, which would find the cell of a variable that a comprehension reads."""
    kind = type(holder)
    if kind is dict:
        for key in [key for key, value in holder.items() if value is new]:
            holder[key] = old
    elif kind is list:
        holder[:] = [old if each is new else each for each in holder]
    elif kind is set and new in holder:
        holder.discard(new)
        holder.add(old)
    elif kind is CellType:
        holder.cell_contents = old
    elif kind is new:
        with contextlib.suppress(TypeError):
            holder.__class__ = old
    elif issubclass(kind, type) and new in holder.__bases__:
        with contextlib.suppress(TypeError):
            holder.__bases__ = tuple(old if base is new else base for base in holder.__bases__)


def _say_whose_it_is(value: Any, old: type, new: type) -> None:
    """Have `super()` in a method refer to the class that it is in now."""
    inner = [getattr(value, name, None) for name in ("__func__", "fget", "fset", "fdel", "func")]
    for function in (value, *inner):
        for cell in getattr(function, "__closure__", None) or ():
            with contextlib.suppress(ValueError):
                if cell.cell_contents is new:
                    cell.cell_contents = old


def import_all(names: Iterable[str]) -> None:
    """Import modules of the notebook, which add names to their parents."""
    for name in names:
        if name not in sys.modules:
            importlib.import_module(name)
