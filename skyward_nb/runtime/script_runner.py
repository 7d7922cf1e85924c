"""A script on a rank, run as Python runs one: as `__main__`, to the end of what it has begun.

A rank lives on after it, so what a process does when it ends is done here.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from skyward_nb.compat.python_private import end_executor_threads, finalizers
from skyward_nb.words.source_code import is_library
from skyward_nb.workdir.working_folder import placed

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_INPUT = (
    "input() in {}: a script on ranks has no keyboard, and its stdin is empty. Give what it asks for as a word after "
    "the script's name, or in a file of its folder"
)

_kept: list[ModuleType] = []
"""Modules of scripts that end with their process."""


def run(
    path: str,
    arguments: Sequence[str],
    folder: str,
    module: str = "",
    key: str = "",
    called: str = "",
) -> None:
    """Run a script, or the `module` that this file is of; raises what ends it, but no `sys.exit` that says all is well.

    It runs in this folder; where there is no such folder, on a machine elsewhere, in that of the rank. With
    a `key` its paths are in the copy of its folder on this machine. It is `called` by this word, or by its path.
    """
    import multiprocessing

    path, folder = placed(key, path), placed(key, folder)
    known = {*finalizers()}
    threads, children = {*threading.enumerate()}, {*multiprocessing.active_children()}
    own = folder if module else path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120
    with (
        _own_modules(own),
        _as_a_process([called or path, *arguments], path, own, folder),
        _endings() as end,
    ):
        try:
            if module:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            elif called and os.path.isfile(path):  # noqa: PTH113
                _run_file(path)
            else:
                runpy.run_path(path, run_name="__main__")
        except SystemExit as ending:
            if _code_of(ending):
                raise SystemExit(_code_of(ending)) from None
        finally:
            # Else they would wait for more work.
            end_executor_threads()
            _join(threads, children)
            end()
            for each in reversed(finalizers()) if called else ():
                if each not in known and each.atexit:
                    each()
            _flush_files()


def _run_file(path: str) -> None:
    """Run a file as `__main__` in a process that ends after it; runpy would put its path in the place of the first argument.

    Its names stay until the process is gone. Their destruction may hang: that of a process group waits for a thread of
    gloo, which waits for the GIL to let its last work go.
    """
    before, module = sys.modules["__main__"], ModuleType("__main__")
    _kept.append(module)
    module.__dict__.update(__file__=path, __builtins__=builtins)
    with open(path, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)  # noqa: S102 - it is a person's script
    finally:
        sys.modules["__main__"] = before


def _code_of(ending: SystemExit) -> int:
    """The exit code of a `sys.exit(...)`; an argument that is no number is printed."""
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    print(ending.code, file=sys.stderr)
    ending.code = 1
    return 1


@contextmanager
def _as_a_process(words: list[str], path: str, own: str, folder: str) -> Generator[None]:
    """Arguments, path, folder and builtins as a process of the script's own has them."""
    argv, search, names = [*sys.argv], [*sys.path], {**builtins.__dict__}
    before = os.open(".", os.O_RDONLY)
    try:
        for name in ("get_ipython", "display"):
            builtins.__dict__.pop(name, None)
        builtins.__dict__.update(exit=sys.exit, quit=sys.exit, input=_no_input)
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.chdir(folder)
        sys.argv[:] = words
        if own != path:  # a folder is put there by runpy
            sys.path.insert(0, own)
        yield
    finally:
        sys.argv[:], sys.path[:] = argv, search
        for name in ("get_ipython", "display", "exit", "quit", "input"):
            builtins.__dict__.pop(name, None)
            builtins.__dict__.update({name: names[name]} if name in names else {})
        with suppress(OSError):
            os.fchdir(before)
        os.close(before)


def _no_input(_prompt: object = "", /) -> NoReturn:
    raise EOFError(_INPUT.format(sys.argv[0]))


@contextmanager
def _own_modules(folder: str) -> Generator[None]:
    """While inside, modules of this folder are imported anew, from its files; then those are there that were."""
    known, files = _modules_below(folder), _FilesBelow(folder)
    try:
        sys.meta_path.insert(0, files)
        for name in known:
            del sys.modules[name]
        yield
    finally:
        sys.meta_path.remove(files)
        for name in _modules_below(folder):
            del sys.modules[name]
        sys.modules.update(known)


class _FilesBelow:
    """Finds modules in a folder before anything else does: a rank has those of cells as they were sent."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As of `importlib.abc.MetaPathFinder`."""
        spec = PathFinder.find_spec(name, [self._folder] if path is None else path, target)
        return spec if spec is not None and _is_below(self._folder, spec.origin) else None


def _modules_below(folder: str) -> dict[str, ModuleType]:
    """Imported modules whose files are in this folder, but this package."""
    return {
        name: module
        for name, module in list(sys.modules.items())
        if _is_below(folder, getattr(module, "__file__", None))
        and name.partition(".")[0] not in ("__main__", "skyward_nb")
    }


def _is_below(folder: str, file: object) -> bool:
    """Whether it is a file in this folder, but not one of a package that is installed there."""
    root = os.path.join(folder, "")  # noqa: PTH118
    text = str(file) if isinstance(file, str | PurePath) else ""
    return bool(text) and text.startswith(root) and not is_library(text)


@contextmanager
def _endings() -> Generator[Callable[[], None]]:
    """Functions registered with `atexit` while inside run when the yielded function is called, the last first."""
    calls: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []
    register, unregister = atexit.register, atexit.unregister
    is_over = False

    def note(function: Callable[..., object], /, *args: Any, **kwargs: Any) -> object:
        if is_over:
            return register(function, *args, **kwargs)
        calls.append((function, args, kwargs))
        return function

    def forget(function: Callable[..., object], /) -> None:
        calls[:] = [each for each in calls if each[0] != function]
        unregister(function)

    def end() -> None:
        nonlocal is_over
        while calls:
            function, args, kwargs = calls.pop()
            try:
                function(*args, **kwargs)
            except (Exception, SystemExit):  # noqa: BLE001 - as Python does: told, and it goes on
                traceback.print_exc()
        is_over = True

    atexit.register, atexit.unregister = note, forget  # type: ignore[assignment]
    try:
        yield end
    finally:
        is_over = True
        atexit.register, atexit.unregister = register, unregister


def _join(threads: set[threading.Thread], children: set[BaseProcess]) -> None:
    """Wait for what the script has started and not waited for, as Python does at its end."""
    import multiprocessing

    for thread in {*threading.enumerate()} - threads:
        if not thread.daemon:
            thread.join()
    for child in {*multiprocessing.active_children()} - children:
        if not child.daemon:
            child.join()


def _flush_files() -> None:
    """Write what files hold that the script did not close."""
    for each in gc.get_objects():
        if issubclass(type(each), io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom):
            with suppress(OSError, ValueError):
                each.flush()
