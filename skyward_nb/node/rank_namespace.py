"""The names of a rank: a run's values are bound, all or none, and its changes are found."""

from __future__ import annotations

import importlib
import os
import sys
import weakref
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

from skyward_nb.node.alteration_watch import altered, prints_of
from skyward_nb.node.imports import ProjectFinder, import_all
from skyward_nb.node.rank_shell import RankShell
from skyward_nb.node.uplink import text_of
from skyward_nb.pickling import definitions, object_table
from skyward_nb.pickling.diagnosis import kind_in_short
from skyward_nb.pickling.home_namespace import set_home
from skyward_nb.pickling.payload import unpack
from skyward_nb.pickling.sizes import measure
from skyward_nb.protocol.commands import Parcel, Run
from skyward_nb.protocol.message_parts import Packed, Rejected, Variable
from skyward_nb.runtime import checkpoint, number_settings
from skyward_nb.store.blobs import BlobStore, CorruptValue
from skyward_nb.words.bounds import bounded
from skyward_nb.words.checkpoints import VARIABLE
from skyward_nb.words.errors import PayloadError

_MISSING = object()

Watched = dict[str, Callable[[object], bool]]
"""By name, whether an object is the one that the name was bound to."""


class NotRebuilt(Exception):
    """A parcel could not be rebuilt: `rejected`."""

    def __init__(self, labels: tuple[str, ...], error: BaseException) -> None:
        super().__init__(str(error))
        reason = bounded(text_of(error))
        if not isinstance(error, PayloadError | object_table.ObjectMissing | CorruptValue):
            reason = f"{type(error).__name__}: {reason}"
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        gone = isinstance(error, object_table.ObjectMissing)
        self.rejected: Rejected = Rejected(labels, reason, missing or "", gone)


class RankNamespace:
    """Binds names in the shell's namespace, and knows which cell bound each."""

    def __init__(self, rank: int, shell: RankShell, store: BlobStore) -> None:
        self._rank = rank
        self._shell = shell
        self._store = store
        self._finder = ProjectFinder()
        self._cells: dict[str, int] = {}
        self._is_just_restored = False
        """Whether all names are a checkpoint's, and no run has changed them since."""
        self._sent: Watched = {}
        """Names from the notebook, where checkpoints may be taken, and whether what they name is as it came."""
        set_home(shell.user_ns)
        checkpoint.connect(
            checkpoint.RankNames(
                self._had_names, self._owners, self._modules, self._finder.tops, self._restored
            )
        )

    def apply_settings(self, path: tuple[str, ...], settings: Mapping[str, str]) -> None:
        """Find modules in the folders of the notebook's `sys.path`, too; have its types and precisions of numbers."""
        number_settings.apply(settings)
        if path:
            sys.path[:] = dict.fromkeys((*path, *sys.path))
            importlib.invalidate_caches()

    def install(self, command: Run) -> Callable[[], object] | None:
        """Bind what came with a run; the call that it is to make, if any.

        Raises `NotRebuilt`, or what a module of the project raises; all names are then as they were.
        """
        for source in command.sources:
            self._shell.learn(source)
        self._finder.renew(command.modules)
        import_all(command.imports)
        object_table.let_go(command.let_go)
        if command.parcels_from:
            object_table.let_go_before(command.parcels_from)
        object_table.prune()
        definitions.let_go(command.unused)
        namespace = self._shell.user_ns
        before: dict[str, object] = {}
        try:
            for name in command.removed:
                before.setdefault(name, namespace.pop(name, _MISSING))
            for parcel in command.parcels:
                if parcel.ranks is None or self._rank in parcel.ranks:
                    self._bind(parcel, before)
            call = self._rebuilt(command.call) if command.call is not None else None
        except BaseException:
            for name, value in before.items():
                if value is _MISSING:
                    namespace.pop(name, None)
                else:
                    namespace[name] = value
            raise
        self._came(before)
        return call

    def _came(self, names: Collection[str]) -> None:
        """Note that what these name is from the notebook."""
        if names:
            self._is_just_restored = False
        self._cells.update(dict.fromkeys(names, 0))
        if VARIABLE in os.environ:
            space = self._shell.user_ns
            self._sent.update({name: _is_as_it_was(space.get(name, _MISSING)) for name in names})

    def _bind(self, parcel: Parcel, before: dict[str, object]) -> None:
        """Bind what is in a parcel at once, as the next one may need it; adds what there was to `before`."""
        value = self._rebuilt(parcel.value, parcel.labels, parcel.number)
        values = value if len(parcel.labels) > 1 else (value,)
        for label, each in zip(parcel.labels, values, strict=True):
            if definitions.is_label(label):
                definitions.keep(label, each)
            else:
                before.setdefault(label, self._shell.user_ns.get(label, _MISSING))
                self._shell.user_ns[label] = each

    def _rebuilt(self, packed: Packed, labels: tuple[str, ...] = (), number: int = 0) -> Any:
        try:
            return unpack(packed, self._store, number)
        except Exception as error:
            raise NotRebuilt(labels, error) from error

    def watch(self, command: Run) -> Watched:
        """Remember what the names are bound to that a run may bind anew."""
        namespace = self._shell.user_ns
        names = set(command.writes)
        if command.opaque:
            names |= {name for name, _ in self._bound()}  # it may remove modules, too
        return {
            name: _is_same(namespace.get(name, _MISSING), replaced=name in command.sure)
            for name in names
        }

    def changes(
        self, command: Run, before: Watched, *, failed: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names that a run has bound to new values other than modules, and names that it has removed."""
        namespace = self._shell.user_ns
        has_code = command.body or command.last or command.call
        if has_code and not command.aside:
            self._is_just_restored = False
        sure = () if failed else command.sure
        assigned = [
            name
            for name, is_same in before.items()
            if (value := namespace.get(name, _MISSING)) is not _MISSING
            and (name in sure or not is_same(value))
            and not issubclass(type(value), ModuleType)
        ]
        if command.opaque:
            assigned += [name for name in self._names() if name not in before]
        self._cells.update(dict.fromkeys(assigned, command.number))
        gone = tuple(name for name in before if name not in namespace)
        for name in (*assigned, *gone):
            self._sent.pop(name, None)  # it may hold the value
        for name, parcels in command.lets_go.items():
            if name in assigned or name not in namespace:
                object_table.let_go(parcels)
        return tuple(assigned), gone

    def prints(self, command: Run) -> dict[str, object]:
        """What tells later whether the run changed containers in place that it may change."""
        return prints_of(command.alters, self._shell.user_ns) if command.alters else {}

    def altered(self, prints: dict[str, object]) -> tuple[str, ...]:
        """The names whose containers have changed since."""
        return altered(prints, self._shell.user_ns) if prints else ()

    def variables(self) -> tuple[Variable, ...]:
        """All names, with sizes."""
        found: list[Variable] = []
        for name in sorted(self._names()):
            value = self._shell.user_ns[name]
            size, more = measure(value)
            kind = kind_in_short(value)
            found.append(Variable(name, kind, size, more, self._cells.get(name, -1)))
        return tuple(found)

    def name_of(self, value: object) -> str:
        """The name that a cell gave this object, or ""."""
        namespace = self._shell.user_ns
        return next((name for name in self._names() if namespace.get(name) is value), "")

    def _names(self) -> list[str]:
        """Names that code bound: no modules, none of IPython's own."""
        return [name for name, value in self._bound() if not issubclass(type(value), ModuleType)]

    def _bound(self) -> list[tuple[str, Any]]:
        """Names that code bound, none of IPython's own."""
        hidden = self._shell.user_ns_hidden
        return [
            (name, value)
            for name, value in list(self._shell.user_ns.items())
            if not name.startswith("_") and not (name in hidden and hidden[name] is value)
        ]

    # ── checkpoints ─────────────────────────────────────────────────────────────────────

    def _had_names(self) -> bool:
        """Whether it has names, or had some; those of a checkpoint alone can be had again, if other ranks have none."""
        return not self._is_just_restored and (bool(self._cells) or bool(self._names()))

    def _owners(self) -> dict[str, bool]:
        """All names; whether each was bound here, or changed in place, and not just sent by the notebook.

        That is so within a run, too.
        """
        space = self._shell.user_ns
        return {
            name: self._cells.get(name, -1) != 0 or not self._is_as_sent(name, space.get(name))
            for name in self._names()
        }

    def _is_as_sent(self, name: str, value: object) -> bool:
        is_as_it_was = self._sent.get(name)
        return is_as_it_was is None or is_as_it_was(value)

    def _modules(self) -> dict[str, str]:
        """Names of modules that can be imported elsewhere, with the modules' own."""
        return {
            name: value.__name__
            for name, value in self._bound()
            if isinstance(value, ModuleType) and value.__name__ in sys.modules
        }

    def _restored(self, own: tuple[str, ...], sent: tuple[str, ...]) -> None:
        """These names are from a checkpoint: the rank's own, and those that the notebook had sent."""
        self._cells.update(dict.fromkeys(own, -1))
        self._came(sent)
        self._is_just_restored = True


def _is_as_it_was(value: object) -> Callable[[object], bool]:
    """Whether an object is this one, and a container has what it has now."""
    if prints := prints_of([""], {"": value}):
        kind = type(value)  # what changes meanwhile is not held
        return lambda now: not altered(prints, {"": now}) and type(now) is kind
    return _is_same(value, replaced=False)


def _is_same(value: object, *, replaced: bool) -> Callable[[object], bool]:
    """Whether an object is this one, which is held weakly where possible, so that a model can go.

    Else it is held, but for a container that the cell surely replaces: there its id has to do.
    """
    try:
        reference = weakref.ref(value)
    except TypeError:
        if replaced and type(value) in (list, dict, set, tuple):
            number = id(value)
            return lambda now: id(now) == number
        return lambda now: now is value
    return lambda now: now is not None and now is reference()
