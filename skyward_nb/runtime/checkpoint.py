"""`sky.checkpoint`: the names of a rank are written where `checkpoint=` says, and taken from there by a later rank.

What is in a checkpoint, and when it is taken, is in `words/checkpoints`; where it lies, in `checkpoint_places`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import msgspec

from skyward_nb.pickling import reducers
from skyward_nb.pickling.home_namespace import home
from skyward_nb.pickling.payload import Bundle, pack, rebuild
from skyward_nb.protocol.answers import NamesKept
from skyward_nb.protocol.commands import KeepNames
from skyward_nb.runtime import event_sink, sharded_states
from skyward_nb.runtime.bounded_wait import Answers, in_time
from skyward_nb.runtime.checkpoint_places import NO_ROOM, CheckpointPlace, place_at
from skyward_nb.runtime.instance import instance_info
from skyward_nb.store.blobs import digest_of
from skyward_nb.words.bounds import bounded
from skyward_nb.words.checkpoints import (
    PART,
    VARIABLE,
    CheckpointPart,
    NotKept,
    RestoredPart,
    SeenCheckpoint,
    beginning_of,
    dead_halves,
    is_part,
    key_of,
    outdated,
)
from skyward_nb.words.decoding import from_json
from skyward_nb.words.errors import PayloadError
from skyward_nb.words.info import InstanceInfo

_ATOMS = (str, bytes, int, float, complex, bool, type(None), FunctionType, type)
_MOST_PARTS = 10_000


@dataclass(frozen=True)
class RankNames:
    """What this rank's namespace tells of its names, and is told.

    `owners` has the names that code bound or the notebook sent, each with whether the rank bound it, or changed it in
    place; `had_some` is whether there were any, ever; `modules` are names of modules, `needed` modules of the project
    that came; `restored` notes names of a checkpoint: the rank's own, and those sent.
    """

    had_some: Callable[[], bool]
    owners: Callable[[], Mapping[str, bool]]
    modules: Callable[[], Mapping[str, str]]
    needed: Callable[[], tuple[str, ...]]
    restored: Callable[[tuple[str, ...], tuple[str, ...]], None]


_names: RankNames | None = None
_in_run: tuple[int, int] = (0, 0)
"""The last run in which a checkpoint was made, and how many were."""
_last: tuple[str, CheckpointPart] | None = None
_hard: AbstractSet[str] = frozenset()
"""Names that could not be pickled the last time: they are asked first, as else all are, one by one."""


def connect(names: RankNames) -> None:
    """This process is a rank with these names."""
    global _names
    _names = names


def checkpoint() -> str:
    """Write this rank's names where the pool's `checkpoint=` says; returns the checkpoint's place.

    All ranks call it, in the same cell; ranks that are begun anew in the pool, and with `resume` those of a new pool of
    its name, begin with these names. What cannot be pickled is left out, and told when names are taken. Raises
    RuntimeError outside a pool with `checkpoint=`, and in a cell of some of the ranks only; OSError where it cannot be
    written; nothing is changed then, and the checkpoint before stays.
    """
    global _in_run
    where = os.environ.get(VARIABLE)
    if where is not None and _names is None:
        raise RuntimeError(
            "sky.checkpoint() keeps the names of cells, and this process has none: a script saves what it needs by itself"
        )
    if where is None:
        raise RuntimeError(
            "sky.checkpoint() writes where the pool's checkpoint= says: make the pool with checkpoint=FOLDER, which all "
            "machines share, or checkpoint=s3://bucket/prefix"
        )
    info = instance_info()
    world = _world_size(info)
    if len(reducers.running) < world:
        raise RuntimeError(
            f"sky.checkpoint() keeps the names of all {world} ranks, and this runs on {len(reducers.running)}: call it in "
            "a cell of all ranks"
        )
    run = event_sink.run()
    _in_run = (run, begun_in(run) + 1)
    key = key_of(info.job_id, info.generation, run, _in_run[1])
    write(key, run)
    return f"{where}/{key}"


def begun_in(run: int) -> int:
    """How many checkpoints this rank has begun in a run."""
    return _in_run[1] if _in_run[0] == run else 0


def write(key: str, run: int, until: float | None = None) -> CheckpointPart:
    """Write this rank's part of a checkpoint, until then (seconds since 1970) or not at all; raises OSError.

    A part that was written last under this key is not written again.
    """
    global _last
    if _last is not None and _last[0] == key:
        return _last[1]
    assert _names is not None, "this process is not a rank"
    place, info, space = _place(), instance_info(), home()
    made = {name: is_own for name, is_own in _names.owners().items() if name in space}
    values = {name: space[name] for name in made}
    bundle, names, states, left_out = _packed(values)
    part = CheckpointPart(
        pool_id=info.job_id,
        generation=info.generation,
        run=run,
        rank=info.pool_rank,
        world_size=_world_size(info),
        at=time.time(),
        python=platform.python_version(),
        digest=bundle.digest,
        size=bundle.size,
        names=names,
        own=tuple(name for name in names if made[name] or not _is_plain(values[name])),
        modules=dict(_names.modules()),
        needs=_names.needed(),
        left_out=left_out,
        states=states,
    )
    names_file, part_file = f"rank-{part.rank}.names", f"rank-{part.rank}{PART}"
    try:
        place.write(key, names_file, bundle.parts, until)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        for half in dead_halves(_seen(place, part.pool_id), part):
            place.remove(half)
        place.write(key, names_file, bundle.parts, until)
    place.write(key, part_file, [msgspec.json.encode(part)], until)
    _last = key, part
    if not part.rank:
        _tidy(place, part.pool_id)
    return part


def _tidy(place: CheckpointPlace, pool_id: str) -> None:
    """Remove older checkpoints of the pool; where that cannot be, it is told in the output, and they stay."""
    try:
        for old in outdated(_seen(place, pool_id), pool_id):
            place.remove(old)
    except OSError as error:
        print(f"older checkpoints are not removed: {error}", file=sys.stderr)


def names_kept(command: KeepNames, rank: int) -> NamesKept:
    """Write this rank's part of a checkpoint, as it is asked; what a user's objects raise meanwhile is told."""
    try:
        return NamesKept(command.key, rank, write(command.key, command.run, command.until))
    except BaseException as error:  # noqa: BLE001 - a user's objects may raise anything as they are packed
        return NamesKept(command.key, rank, why=bounded(f"{type(error).__name__}: {error}"))


def _place() -> CheckpointPlace:
    return place_at(os.environ[VARIABLE])


def _world_size(info: InstanceInfo) -> int:
    return info.total_nodes * info.workers_per_node


def _packed(
    values: dict[str, Any],
) -> tuple[Bundle, tuple[str, ...], tuple[str, ...], tuple[NotKept, ...]]:
    """One pickle of values and states by name; which these are, and what cannot be pickled.

    States of a checkpoint whose names were not made again go on.
    """
    global _hard
    kept = {name: each for name, each in sharded_states.kept.items() if name not in home()}
    whole = "the names of this rank"
    good, states, left_out = _apart(values, _hard)
    try:
        bundle = pack(whole, (good, kept | states))
    except PayloadError:
        """One at least that was not asked."""
        good, states, left_out = _apart(values, values.keys())
        bundle = pack(whole, (good, kept | states))
    _hard = values.keys() - good.keys()
    return bundle, tuple(good), tuple(kept | states), left_out


def _apart(
    values: dict[str, Any], asked: AbstractSet[str]
) -> tuple[dict[str, Any], dict[str, Any], tuple[NotKept, ...]]:
    """Values without those that cannot be pickled of the ones asked for; of these the states, and what has none."""
    good, states, left_out = dict(values), dict[str, Any](), list[NotKept]()
    of_object: dict[int, Any] = {}
    for name, value in values.items():
        if name not in asked:
            continue
        try:
            pack(name, value)
        except PayloadError as error:
            del good[name]
            if (number := id(value)) not in of_object:
                of_object[number] = _picklable_state(name, value)
            if of_object[number] is not None:
                states[name] = of_object[number]  # one state for all names of the object
            else:
                left_out.append(NotKept(name, bounded(error.type_name)))
    return good, states, tuple(left_out)


def _picklable_state(name: str, value: object) -> Any:
    """The state of what cannot be pickled itself; None if there is none."""
    try:
        state = sharded_states.state_of(value)
        pack(name, state)
    except Exception:  # noqa: BLE001 - a user's `state_dict` may raise anything
        return None
    return state


def _is_plain(value: object) -> bool:
    """Whether nobody but who bound it can have changed it: text, numbers, functions, classes, and containers of these."""
    todo, seen = [value], 0
    while todo:
        each = todo.pop()
        seen += 1
        kind = type(each)
        if seen > _MOST_PARTS:
            return False
        if kind in (list, tuple, set, frozenset):
            todo.extend(each)  # type: ignore[arg-type]
        elif kind is dict:
            todo.extend([*each.keys(), *each.values()])  # type: ignore[attr-defined]
        elif kind not in _ATOMS and not issubclass(kind, type):
            return False
    return True


# ── whether the place will do ───────────────────────────────────────────────────────────


def probe() -> str:
    """Write a file of this rank there, and nothing else; raises OSError."""
    rank = instance_info().pool_rank
    in_time(lambda: _place().write(*_probe(rank), [b"."], None))
    return ""


def probed() -> str:
    """The ranks whose files are not seen here, as JSON."""
    unseen: list[int] = []

    def look_for_all() -> None:
        for rank in range(_world_size(instance_info())):
            try:
                _place().read(*_probe(rank))
            except OSError:
                unseen.append(rank)
            answers.note()

    answers = Answers()
    in_time(look_for_all, answers)
    return msgspec.json.encode(unseen).decode()


def unprobed() -> str:
    """Remove these files, on the first rank of each machine: each may see another place."""
    if not instance_info().worker:
        in_time(lambda: _place().remove(_probe(0)[0]))
    return ""


def _probe(rank: int) -> tuple[str, str]:
    return f"{instance_info().job_id}-probe", f"rank-{rank}.probe"


# ── for ranks that are begun anew ───────────────────────────────────────────────────────


def has_names() -> str:
    """Whether this rank has names, or had some: "yes" or ""."""
    assert _names is not None, "this process is not a rank"
    return "yes" if _names.had_some() else ""


def look(pool_id: str = "") -> str:
    """The checkpoints that this rank sees, of this pool if one is given, as JSON of `SeenCheckpoint`s; raises OSError."""
    answers = Answers()
    found = in_time(lambda: _seen(_place(), pool_id, answers.note), answers)
    return msgspec.json.encode(found).decode()


def _seen(
    place: CheckpointPlace, pool_id: str = "", answered: Callable[[], None] = lambda: None
) -> list[SeenCheckpoint]:
    """Checkpoints, also of halves without a part; of this pool if one is given. Other files are let alone."""
    there: list[SeenCheckpoint] = []
    for key, names in place.files(beginning_of(pool_id) if pool_id else "", answered).items():
        seen = SeenCheckpoint(key, ())
        if not seen.pool_id or pool_id not in ("", seen.pool_id):
            continue
        parts: list[CheckpointPart] = []
        for name in names:
            # A file that was removed meanwhile, or is no part of a checkpoint, completes none.
            with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
                if is_part(key, name):
                    parts.append(from_json(bytes(place.read(key, name)), CheckpointPart))
            answered()
        there.append(SeenCheckpoint(key, tuple(sorted(parts, key=lambda each: each.rank))))
    return there


def restore(key: str, skipped: tuple[str, ...] = ()) -> str:
    """Bind this rank's names of a checkpoint but the `skipped`; what came of it as JSON of a `RestoredPart`.

    Raises OSError where it cannot be read, and what rebuilding the names raises; no name is bound then.
    """
    assert _names is not None, "this process is not a rank"
    place, rank = _place(), instance_info().pool_rank
    part = from_json(bytes(place.read(key, f"rank-{rank}{PART}")), CheckpointPart)
    data = place.read(key, f"rank-{rank}.names")
    if digest_of([data]) != part.digest:
        raise OSError(
            f"{key}/rank-{rank}.names is damaged: its bytes are not those that were written"
        )
    try:
        found: tuple[dict[str, Any], dict[str, Any]] = rebuild(data)
    except ModuleNotFoundError as error:
        raise OSError(
            f"names of the checkpoint need the module {error.name}, which is not here"
        ) from error
    values, states = found
    sharded_states.kept.clear()
    sharded_states.kept.update(states)
    lacking: list[NotKept] = list(part.left_out)
    for name, module in part.modules.items():
        try:
            values.setdefault(name, importlib.import_module(module))
        except Exception as error:  # noqa: BLE001 - a module may raise anything
            lacking.append(NotKept(name, bounded(f"{type(error).__name__}: {error}")))
    for name in skipped:
        values.pop(name, None)
    home().update(values)
    names = tuple(name for name in part.names if name in values)
    own = tuple(name for name in part.own if name in values)
    _names.restored(own, tuple(name for name in names if name not in part.own))
    return msgspec.json.encode(RestoredPart(names, own, tuple(lacking))).decode()
