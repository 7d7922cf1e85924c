"""The pickler of users' objects: cloudpickle's, with this project's notions of a notebook.

Four things are added. Definitions of the notebook (see `definitions`) are named by their label.
Functions rebuilt on a rank use the namespace they arrive in, so that `x = 100` there is seen by
them. What is pickled tells what else it needs: names its code reads, definitions, project modules.
And objects that the ranks have already can be cut out and pointed at (see `object_table`).
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import itertools
import opcode
import pickle
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from skyward_nb.compat import cloudpickle_private, jax_private, torch_models_private
from skyward_nb.pickling import (
    compiled_reducers,
    definitions,
    process_bound,
    reducer_table,
    reducers,
)
from skyward_nb.pickling.home_namespace import Home, ModuleNames, home
from skyward_nb.pickling.object_table import Address
from skyward_nb.words.source_code import parse

Reducer = Callable[[Any], Any]
_reducers: dict[type, Reducer | None] = {}


if TYPE_CHECKING:

    class _Pickler(pickle.Pickler):
        """cloudpickle's, which has no types of its own."""

else:
    _Pickler = cloudpickle.Pickler


class Pickler(_Pickler):
    """Pickles one value; its fields then say what the value needs.

    With `to_ranks`, definitions become labels. `roots` are the definitions that are pickled
    themselves.
    """

    def __init__(
        self,
        file: io.BytesIO,
        buffer_callback: Callable[[pickle.PickleBuffer], Any],
        *,
        to_ranks: bool = False,
        roots: Iterable[object] = (),
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.file = file
        self._to_ranks = to_ranks
        self.roots: set[int] = {id(root) for root in roots}
        self.reads: set[str] = set()
        self.tokens: set[str] = set()
        self.files: set[str] = set()
        self.modules: set[str] = set()
        self.definitions: dict[str, object] = {}
        self.views: dict[int, list[tuple[Any, bool]]] = {}
        self.compact: Collection[int] = ()

    def reducer_override(self, obj: Any) -> Any:
        """The parts of an object; NotImplemented for pickle's own way."""
        kind = type(obj)
        if kind is types.FunctionType:
            return self._function(obj)
        if issubclass(kind, type):
            return self._class(obj)
        if reducers.is_torch_tensor(kind):
            return self._tensor(obj)
        if kind is types.CellType:
            return _cell(obj)
        if kind is types.MethodType:
            return _method(obj)
        if kind is types.ModuleType:
            self.modules.add(obj.__name__)
            return NotImplemented
        try:
            way = _reducers[kind]
        except KeyError:
            way = reducer_table.reducer_of(kind)
            is_lasting = kind.__module__ in sys.modules and kind.__module__ != "__main__"
            if is_lasting and not reducer_table.is_of_one_object(kind):
                _reducers[kind] = way
        return NotImplemented if way is None else self._by_its_way(way, obj)

    def _by_its_way(self, way: Any, obj: Any) -> Any:
        reduced = way(obj)
        if type(reduced) is str:  # its name in its module
            self._refer_to(obj.__module__)
        return reduced

    def _tensor(self, tensor: Any) -> Any:
        """A tensor; if asked, without the memory around the part that it shows."""
        memory, is_part = reducers.torch_view(tensor)
        if memory in self.compact:
            tensor = reducers.torch_copy(tensor)
            return reducers.torch_of_a_new_type(tensor)
        self.views.setdefault(memory, []).append((tensor, is_part))
        return reducers.torch_of_a_new_type(tensor)

    def lone_views(self) -> set[int]:
        """Memory, by its id, that only one tensor looks at, and at a small part of it."""
        return {
            memory for memory, ((_, is_part), *more) in self.views.items() if is_part and not more
        }

    # ── functions and classes ───────────────────────────────────────────────────────────

    def _function(self, func: types.FunctionType) -> Any:
        if definitions.is_importable(func):
            self._refer_to(func.__module__)
            return NotImplemented
        if definitions.is_definition(func):
            label = definitions.label_of(func)
            if self._to_ranks and id(func) not in self.roots:
                return self._token(label, func)
            return self._by_value(func, definitions.make_function, label)
        if func.__globals__ is home():
            return self._by_value(func, cloudpickle_private.make_function)
        if (parts := torch_models_private.compiled_of(func)) is not None:
            return compiled_reducers.compile_again, parts
        if torch_models_private.wraps_compiled(func) or definitions.uses_its_module(func):
            return self._in_its_module(func)
        return cloudpickle_private.take_function_apart(self, func)

    def _refer_to(self, module: str) -> None:
        """Note the module of an object; modules of this package are on all ranks."""
        if not str(module).startswith("skyward_nb."):
            self.modules.add(module)

    def _token(self, label: str, value: object) -> Any:
        self.definitions[label] = value
        return definitions.defined, (label,)

    def _by_value(self, func: types.FunctionType, make: Any, *first: Any) -> Any:
        """As cloudpickle does it, but for the globals: those are the namespace it arrives in."""
        code = func.__code__
        self.reads.update(cloudpickle_private.globals_read(code))
        mentioned = code_names(code)
        self.tokens.update(mentioned.tokens)
        self.reads.update(mentioned.more)
        self.modules.update(mentioned.imports)
        self.files.add(code.co_filename)
        self.reads.update(_named_in(func.__annotations__))
        return self._made(func, make, *first, code, Home())

    def _in_its_module(self, func: types.FunctionType) -> Any:
        """A function that a package made, such as a decorator's: its globals are those of its module there."""
        module = func.__globals__["__name__"]
        self._refer_to(module)
        return self._made(
            func, cloudpickle_private.make_function, func.__code__, ModuleNames(module)
        )

    def _made(self, func: types.FunctionType, make: Any, *first: Any) -> Any:
        code = func.__code__
        captured = [cloudpickle_private.cell_contents(cell) for cell in func.__closure__ or ()]
        modules = [each for each in captured if isinstance(each, types.ModuleType)]
        slots = {
            # Fresh strings, since interned ones would be pickled as the same object now and then.
            "__name__": "".join(func.__name__),
            "__qualname__": "".join(func.__qualname__),
            "__annotations__": func.__annotations__,
            "__kwdefaults__": func.__kwdefaults__,
            "__defaults__": func.__defaults__,
            "__module__": func.__module__,
            "__doc__": func.__doc__,
            "__closure__": func.__closure__,  # of one that is there, cells get what these have
            cloudpickle_private.SUBMODULES: cloudpickle_private.submodules_used(code, modules),
            "__globals__": {},
        }
        own = torch_models_private.without_copies(func)
        state = {"".join(key): value for key, value in own.items()}
        made = (*first, None, None, func.__closure__)
        return make, made, (state, slots), None, None, cloudpickle_private.fill_function

    def _class(self, cls: type) -> Any:
        if definitions.is_definition(cls):
            label = definitions.label_of(cls)
            if self._to_ranks and id(cls) not in self.roots:
                return self._token(label, cls)
        elif cls.__module__ != "builtins":
            self._refer_to(cls.__module__)
            if definitions.is_importable(cls):
                return NotImplemented
        reduced = _taken_apart(cls)
        if not isinstance(reduced, tuple) or len(reduced) != 6:
            return reduced
        make, args, (attributes, slots), *_ = reduced
        # Slots make these themselves; cloudpickle forgets those with two leading underscores.
        attributes = {
            name: value
            for name, value in attributes.items()
            if not isinstance(value, types.MemberDescriptorType)
        }
        plain = make is cloudpickle_private.make_class and args[2] == cls.__bases__
        if "__slots__" in vars(cls) and plain:
            # cloudpickle makes classes without them, whose instances have a __dict__ then.
            slotted = vars(cls)["__slots__"]
            named = (slotted,) if isinstance(slotted, str) else tuple(slotted)
            kind, name, bases, keywords, *rest = args
            args = (kind, name, bases, {**keywords, "__slots__": named}, *rest)
        if plain and definitions.teller_of_subclasses(cls.__bases__):
            make = definitions.make_class
        own = id(cls) in self.roots or (self._to_ranks and not definitions.is_definition(cls))
        way = jax_private.way_apart(cls)
        state = own, (attributes, slots), *(() if way is None else (way,))
        return make, args, state, None, None, definitions.fill_class


def _taken_apart(cls: type) -> Any:
    """A class as cloudpickle takes it apart; a typed dictionary is made of `TypedDict`, whatever it derives from."""
    reduced: Any = cloudpickle_private.take_class_apart(cls)
    if not typing.is_typeddict(cls) or not isinstance(reduced, tuple) or reduced[1][2] != (dict,):
        return reduced
    make, args, *rest = reduced
    return make, (*args[:2], (typing.TypedDict,), *args[3:]), *rest


def _method(method: types.MethodType) -> Any:
    """A method; of a package's class, by its name: cloudpickle would send the code of what `@classmethod` marks."""
    owner: Any = method.__self__
    func = method.__func__
    if not isinstance(func, types.FunctionType) or func.__globals__ is home():
        return NotImplemented
    if not issubclass(type(owner), type) or not definitions.is_importable(owner):
        return NotImplemented
    is_named = getattr(owner, func.__name__, None) == method
    return (getattr, (owner, func.__name__)) if is_named else NotImplemented


def _cell(cell: types.CellType) -> Any:
    """A variable that functions close over: one for all of them, filled once it is there."""
    try:
        content = cell.cell_contents
    except ValueError:
        return cloudpickle_private.make_cell, ()
    return cloudpickle_private.make_cell, (), (content,), None, None, fill_cell


def fill_cell(cell: types.CellType, content: tuple[object]) -> None:
    """Fill a cell that was just made; in a tuple, since pickle takes None for no content."""
    (cell.cell_contents,) = content


def _named_in(annotations: Mapping[str, Any]) -> Iterator[str]:
    """Names in annotations that are text, as `from __future__ import annotations` leaves them."""
    for text in annotations.values():
        if isinstance(text, str):
            with contextlib.suppress(SyntaxError):
                nodes = ast.walk(parse(text, "eval"))
                yield from (node.id for node in nodes if isinstance(node, ast.Name))


class CuttingPickler(Pickler):
    """Leaves out the objects in `cuts` (by id), and points at them where they are on the ranks."""

    cuts: Mapping[int, Address] = {}

    def persistent_id(self, obj: Any) -> Any:
        """The address of an object that is cut out, else None."""
        return self.cuts.get(id(obj))


class LenientPickler(CuttingPickler):
    """Asks dill about each object that neither cloudpickle nor the object's own class can take.

    `culprit` is the object that was last asked how it is taken apart.
    """

    culprit: object = None

    def reducer_override(self, obj: Any) -> Any:
        """As cloudpickle does, else as the object itself says, else as dill does."""
        self.culprit = obj
        reduced = super().reducer_override(obj)
        if reduced is not NotImplemented or issubclass(type(obj), type | types.FunctionType):
            return reduced
        if type(obj) in self.dispatch_table:
            return NotImplemented
        self.culprit = obj
        try:
            if type(obj) is super:  # pickle's way seems to work until it is read
                return _from_dill, (_to_dill(obj),)
            return obj.__reduce_ex__(5)
        except Exception as error:  # noqa: BLE001 - a user's class raises what it likes
            try:
                return _from_dill, (_to_dill(obj),)
            except Exception:  # noqa: BLE001 - then the first error is the one to tell
                raise error from None


def _to_dill(obj: object) -> bytes:
    """The object in dill's way; raises where dill cannot, or would only pretend to."""
    import dill

    class Honest(dill.Pickler):
        def save(self, obj: object, save_persistent_id: bool = True) -> None:
            if (why := process_bound.refusal(type(obj))) is not None:
                raise process_bound.Unpicklable(why)
            super().save(obj, save_persistent_id)

    file = io.BytesIO()
    Honest(file, protocol=5, recurse=True).dump(obj)
    data = file.getvalue()
    if type(_from_dill(data)) is not type(obj):
        raise pickle.PicklingError("dill would not rebuild it as it is")
    return data


def _from_dill(data: bytes) -> object:
    import dill

    return dill.loads(data)  # noqa: S301 - as all that is unpacked


class CodeNames(NamedTuple):
    """Every name that code mentions, attributes included, and the modules it imports.

    `more` are names it reads that cloudpickle does not see: those in the bodies of classes within
    it, and in the text of IPython's magics and shell lines.
    """

    tokens: frozenset[str]
    imports: frozenset[str]
    more: frozenset[str]


_code_names: dict[types.CodeType, CodeNames] = {}
_IMPORT_NAME, _EXTENDED_ARG, _LOAD_NAME, _STORE_NAME = (
    opcode.opmap[name] for name in ("IMPORT_NAME", "EXTENDED_ARG", "LOAD_NAME", "STORE_NAME")
)
_MAGIC_CALLS = {"run_line_magic", "run_cell_magic", "system", "getoutput"}


def code_names(code: types.CodeType) -> CodeNames:
    """Names that code mentions and imports, including functions within it."""
    known = _code_names.get(code)
    if known is None:
        inner = [code_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
        tokens = frozenset(itertools.chain(code.co_names, *(each.tokens for each in inner)))
        imports = frozenset(itertools.chain(_imports(code), *(each.imports for each in inner)))
        more = frozenset(itertools.chain(_read_unseen(code), *(each.more for each in inner)))
        if len(_code_names) > 2000:
            _code_names.clear()
        known = _code_names[code] = CodeNames(tokens, imports, more)
    return known


def _instructions(code: types.CodeType) -> Iterator[tuple[int, int]]:
    """(operation, argument) of each instruction."""
    high = 0
    for at in range(0, len(code.co_code), 2):
        op, arg = code.co_code[at], code.co_code[at + 1] | high
        high = arg << 8 if op == _EXTENDED_ARG else 0
        yield op, arg


def _imports(code: types.CodeType) -> Iterator[str]:
    return (code.co_names[arg] for op, arg in _instructions(code) if op == _IMPORT_NAME)


def _read_unseen(code: types.CodeType) -> Iterator[str]:
    if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a class
        bound: set[str] = set()
        for op, arg in _instructions(code):
            if op == _STORE_NAME:
                bound.add(code.co_names[arg])
            elif op == _LOAD_NAME and code.co_names[arg] not in bound:
                yield code.co_names[arg]
    if not _MAGIC_CALLS.isdisjoint(code.co_names):
        for text in code.co_consts:
            if isinstance(text, str):
                yield from (word for word in re.findall(r"[A-Za-z_]\w*", text))
