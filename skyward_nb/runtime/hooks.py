"""Loops of other packages shown as bars, what they log as metrics, and groups of torch that end, with no change to user code.

`installed` patches packages when they are imported, and those that are already, at once. It owns how
that is done and undone; the modules in `_HOOKS` list the methods of each package, and are imported no earlier
than the package. A package that is not as we know it stays as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Generator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from skyward_nb.compat import keras_private
from skyward_nb.runtime import event_sink

_HERE = "skyward_nb.runtime."
_HOOKS = {
    "tqdm.std": "tqdm_bars",
    "tqdm.notebook": "tqdm_bars",
    "tqdm.rich": "tqdm_bars",
    "tqdm.gui": "tqdm_bars",
    "tqdm.tk": "tqdm_bars",
    **dict.fromkeys(keras_private.PROGRESS, "keras_bars"),
    **dict.fromkeys(keras_private.TRAINERS, "keras_alone"),
    keras_private.SAVING: "keras_on_jax",
    "transformers.trainer_callback": "transformers_bars",
    "transformers.trainer": "transformers_bars",
    "torch.nn.parallel.distributed": "torch_groups",
    **dict.fromkeys(("jax", "torch", "keras"), "number_settings"),
}
_IF_NOT = "its progress may not be shown as bars"
"""What may be where a package cannot be patched, if its module here has no `IF_NOT` of its own."""
_MISSING = object()
_told: set[str] = set()
_process = 0
_streams: tuple[object, ...] = ()


@contextlib.contextmanager
def installed() -> Generator[None]:
    """While inside, loops of tqdm, Keras and transformers are bars; leaving restores everything.

    Enter it in the process whose loops are to be shown, once its `sys.stdout` and `sys.stderr` are
    in place: a bar that would go to another stream stays text there. Within itself it does nothing.
    """
    global _process, _streams
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        yield
        return
    _process = os.getpid()
    _streams = sys.stdout, sys.stderr
    changes = Changes()
    finder = _Finder(changes)
    sys.meta_path.insert(0, finder)
    try:
        for name in _HOOKS:
            if (module := sys.modules.get(name)) is not None:
                _patch(name, module, changes)
        yield
    finally:
        with contextlib.suppress(ValueError):  # it is removed already
            sys.meta_path.remove(finder)
        settle(closing=True)
        changes.undo()
        _process, _streams = 0, ()


def settle(*, closing: bool = False) -> None:
    """Have loops that go on tell how far they are, as at the end of a run; or close them."""
    # Packages that are not imported have no loops; those that tqdm knows come first.
    for name in ("tqdm_bars", "loops"):
        if (ours := sys.modules.get(_HERE + name)) is not None:
            ours.settle(closing=closing)


def is_shown() -> bool:
    """Whether loops of this process become bars: there is a pool, and this is not a child."""
    return event_sink.is_connected() and os.getpid() == _process


def is_console(stream: object) -> bool:
    """Whether text written to `stream` is shown, rather than kept in a file of the user's."""
    shown = (*_streams, sys.__stdout__, sys.__stderr__)
    return stream is not None and any(stream is each for each in shown)


@contextlib.contextmanager
def careful(package: str, what: str = _IF_NOT) -> Generator[None]:
    """Report an error of this package once, and `what` may be then; the user's code runs as if there were no hook."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a package of another version may be anything
        give_up(package, error, what)


def give_up(package: str, error: Exception, what: str = _IF_NOT) -> None:
    """Say once that a package is not as we know it, and `what` may be then."""
    if package in _told:
        return
    _told.add(package)
    version = getattr(sys.modules.get(package), "__version__", "of an unknown version")
    text = f"{package} {version} is new to skyward_nb: {what} ({type(error).__name__}: {error})"
    # If warnings are errors, this one must not break the user's import.
    with contextlib.suppress(Warning):
        warnings.warn(text, RuntimeWarning, stacklevel=3)


class Changes:
    """Attributes of foreign classes and modules that were set, and what they were before."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, object]] = []

    def put(self, owner: Any, name: str, value: object) -> None:
        """Set an attribute of a class or module."""
        self._before.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def mark(self) -> int:
        """The present position, for `undo`."""
        return len(self._before)

    def undo(self, back_to: int = 0) -> None:
        """Make everything set since `back_to` what it was, the latest first."""
        while len(self._before) > back_to:
            owner, name, value = self._before.pop()
            if value is not _MISSING:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)


def _patch(name: str, module: ModuleType, changes: Changes) -> None:
    """Patch one module; all of it, or it stays as it is."""
    mark = changes.mark()
    ours = _HERE + _HOOKS[name]
    try:
        importlib.import_module(ours).patch(module, changes)
    except Exception as error:  # noqa: BLE001 - a package of another version may be anything
        changes.undo(mark)
        what = getattr(sys.modules.get(ours), "IF_NOT", _IF_NOT)
        give_up(name.partition(".")[0], error, what)


class _Finder(MetaPathFinder):
    """Finds nothing itself: has the modules in `_HOOKS`, found by others, patched once they ran."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec as another finder gives it, with a loader that patches."""
        if fullname not in _HOOKS:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if find is None or isinstance(finder, _Finder):
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _PatchingLoader(spec.loader, self._changes)
                return spec
        return None


class _PatchingLoader(Loader):
    """Stands in for a module's loader until the module runs."""

    def __init__(self, loader: Any, changes: Changes) -> None:
        self._loader = loader
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own loader back, run it, and patch it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _patch(module.__name__, module, self._changes)
