"""Checkpoints of ranks' names as plain data: where they are, what is in one, which one ranks go on from. Pure.

A checkpoint is what `sky.checkpoint()` wrote on all ranks of a pool at one call, or what they wrote when a machine
was about to be taken back. The design:

- Each rank writes its own part, from its own process: its names as one pickle (so an optimizer still refers to
  the parameters of its model), what cannot be pickled left out and named. Of what cannot be pickled and has a
  `state_dict`, as a model under `fully_shard` and its optimizer, the state is in it: each rank's own shards
  (`runtime/sharded_states`), which `sky.rejoin` gives to those that are made again.
- `checkpoint=PLACE` is a folder on the ranks' machines (one that they share: a common home, EFS, NFS; with
  provider=local any), or `s3://bucket/prefix`, with the machines' own credentials (`instance_profile=`).
- Below PLACE, `POOL/KEY/` has for each rank `rank-N.names`, the pickle, and, written after it, `rank-N.json`, a
  `Part`: digest, size, names. A checkpoint is whole once all ranks' parts are there; what is half written is never
  taken. Files are written under another name first, and renamed; an object of S3 is there as a whole or not at all.
- A key begins with the pool's id, generation and run, so all ranks know it without talking to one another.
- The two newest whole checkpoints of a pool are kept; rank 0 removes older ones after its own part. Those of other
  pools stay. Which one of a pool is newer is in its keys; only between pools it is by their clocks.
- A checkpoint is read only where its pickle's bytes have the digest of its part. It is a pickle, and runs code when
  it is read: it is taken from the place that the user named alone, and in a folder only where the files are the
  user's own and nobody else may write them (written 0600, in folders of 0700).
- Ranks that are begun anew (in place of those of a reclaimed machine, or of one that died) get the newest whole one of
  their own pool, and with `resume` the ranks of a new pool the newest one under its name. All ranks agree on it:
  each lists what it sees, and the client (`pool/resuming`) chooses what all see whole. As many ranks, and the
  same minor version of Python, are needed: else that is an error.
- What ranks made, or may have changed, is theirs then, as if they had lived (`names/ledger`); plain values that the
  notebook sent, functions and classes are the notebook's, if it still has them.
"""

from __future__ import annotations

import posixpath
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from skyward_nb.words.errors import OptionError, SkyError, spell_size

S3 = "s3://"
VARIABLE = "SKYWARD_KEPT_NAMES"
"""Where checkpoints of a pool's name are; the agent sets it for ranks of a pool with `checkpoint=`."""
PART = ".json"
"""The end of the names of files that hold a `CheckpointPart`."""
KEPT = 2
"""How many whole checkpoints of a pool are kept."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
"""https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""
_NOTICE = "notice"
_KEY = re.compile(
    rf"(?P<pool>.+)-g(?P<generation>\d{{4,}})-r(?P<run>\d{{6,}})-(?P<count>\d+|{_NOTICE})"
)
_PART_NAME = re.compile(rf"rank-\d+{re.escape(PART)}")
_LAST_OF_RUN = sys.maxsize
_MOST_NAMED = 5
_LONGEST_NOTICE = 120.0
"""Seconds from a notice to the end of a machine, at most; clocks of machines differ."""


class NotKept(msgspec.Struct, frozen=True):
    """A name that is not in a checkpoint, and why."""

    name: str
    why: str


class CheckpointPart(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a checkpoint; it is written last.

    `names` are in the pickle of this `digest` and `size`; those that are `own` the rank has made, or may have
    changed. `modules` are names of modules, with the modules'. `at` is in seconds since 1970, `run` the pool's
    run in which it was written, or after which.
    """

    pool_id: str
    generation: int
    run: int
    rank: int
    world_size: int
    at: float
    python: str
    digest: str
    size: int
    names: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    modules: dict[str, str] = {}
    needs: tuple[str, ...] = ()
    """Modules of the project that the rank had from the notebook, at the top."""
    left_out: tuple[NotKept, ...] = ()
    states: tuple[str, ...] = ()
    """Names of which the state alone is in the pickle."""


class SeenCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint as one rank sees it: its key, and the parts that are there."""

    key: str
    parts: tuple[CheckpointPart, ...]

    @property
    def at(self) -> float:
        """When its last part was written, in seconds since 1970."""
        return max((part.at for part in self.parts), default=0.0)

    @property
    def pool_id(self) -> str:
        """The pool that wrote it; "" if the key is of another form."""
        found = _KEY.fullmatch(self.key)
        return found["pool"] if found else ""

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among those of its pool, by generation, run, and count in that: clocks of machines differ."""
        found = _KEY.fullmatch(self.key)
        if found is None:
            return 0, 0, 0
        count = _LAST_OF_RUN if found["count"] == _NOTICE else int(found["count"])
        return int(found["generation"]), int(found["run"]), count

    @property
    def is_whole(self) -> bool:
        """Whether the parts of all ranks are there, and there are names in them."""
        ranks = {part.rank for part in self.parts}
        has_names = any(part.names or part.states for part in self.parts)
        return has_names and ranks == set(range(self.parts[0].world_size))


class RestoredPart(msgspec.Struct, frozen=True):
    """A rank's answer when it took its part: the names that could not be had, with reasons."""

    names: tuple[str, ...]
    own: tuple[str, ...]
    lacking: tuple[NotKept, ...] = ()


class StoppedAtNotice(SkyError):
    """A cell was stopped, so that ranks can keep their names before machines are reclaimed, which `why` names."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the cell was stopped so that ranks can keep their names: {why}. Run it again: ranks go on from these names"
        )
        self.why = why

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.why,), self.__dict__


def read_place(option: str, text: str) -> str:
    """A folder or `s3://bucket/prefix`, in one spelling; raises `OptionError`."""
    if text.startswith(S3):
        bucket, _, prefix = text.removeprefix(S3).partition("/")
        parts = [part for part in prefix.split("/") if part]
        if not _BUCKET.fullmatch(bucket) or {".", ".."} & {*parts}:
            raise OptionError(option, f"{option}={text}: write {option}=s3://bucket/prefix")
        return posixpath.join(S3 + bucket, *parts)
    if "://" in text:
        raise OptionError(
            option,
            f"{option}={text}: give a folder on the ranks' machines, such as {option}=/shared/checkpoints, or "
            f"{option}=s3://bucket/prefix",
        )
    if not text.startswith(("/", "~/")) or "\n" in text:
        name = posixpath.basename(text)
        raise OptionError(
            option,
            f"{option}={text}: ranks may work in other folders than the notebook: give the whole path, "
            f"such as {option}=~/{'checkpoints' if name in ('', '.', '..', '~') else name}",
        )
    return posixpath.normpath(text)


def beginning_of(pool_id: str) -> str:
    """How the names of a pool's checkpoints begin."""
    return f"{pool_id}-g"


def key_of(pool_id: str, generation: int, run: int, count: int) -> str:
    """The name of a checkpoint, which all ranks find alike: the `count`th of a run."""
    return f"{pool_id}-g{generation:04d}-r{run:06d}-{count}"


def notice_key(pool_id: str, generation: int, run: int) -> str:
    """The name of the checkpoint that ranks write after a run, since a machine of theirs is reclaimed."""
    return f"{pool_id}-g{generation:04d}-r{run:06d}-{_NOTICE}"


def is_part(key: str, name: str) -> bool:
    """Whether a file is a rank's part of a checkpoint, by its names; the place may have others."""
    return _KEY.fullmatch(key) is not None and _PART_NAME.fullmatch(name) is not None


def end_of_time(at: str) -> float | None:
    """When a notice says that a machine ends, in seconds since 1970; None where it cannot be read."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return None


def time_before_stop(now: float, end: float | None) -> float:
    """Seconds that a cell goes on after a notice that its machine ends then: half of those that are left."""
    return 0.0 if end is None else max(0.0, min(end - now, _LONGEST_NOTICE) / 2)


def newest(
    seen: Sequence[Sequence[SeenCheckpoint]],
    pool_id: str,
    *,
    since: int = 0,
    or_others: bool = False,
) -> SeenCheckpoint | None:
    """The newest checkpoint of this pool that is whole for all who look, of this generation or later.

    With `or_others`, where there is none, the newest of the pool that wrote last.
    """
    if not seen:
        return None
    whole = [{each.key: each for each in found if each.is_whole} for found in seen]
    keys = set(whole[0]).intersection(*whole[1:])
    of_pools: dict[str, SeenCheckpoint] = {}
    for each in sorted((whole[0][key] for key in keys), key=lambda each: each.order):
        of_pools[each.pool_id] = each
    own = of_pools.pop(pool_id, None)
    if own is not None and own.order[0] >= since:
        return own
    return max(of_pools.values(), key=lambda each: each.at, default=None) if or_others else None


def outdated(found: Sequence[SeenCheckpoint], pool_id: str) -> list[str]:
    """The keys of this pool's checkpoints that are not kept: older whole ones, and older halves; never others'."""
    mine = sorted((each for each in found if each.pool_id == pool_id), key=lambda each: each.order)
    whole = [each for each in mine if each.is_whole]
    if not whole:
        return []
    kept = {each.key for each in whole[-KEPT:]}
    return [each.key for each in mine if each.key not in kept and each.order < whole[-1].order]


def dead_halves(found: Sequence[SeenCheckpoint], part: CheckpointPart) -> list[str]:
    """The keys of checkpoints of earlier runs of this part's pool that lack a rank's: they stay halves."""
    return [
        each.key
        for each in found
        if each.pool_id == part.pool_id
        and each.order[:2] < (part.generation, part.run)
        and not (each.parts and each.is_whole)
    ]


def spell_time(at: float) -> str:
    """A time of day, with the date if it is not today's."""
    then, now = time.localtime(at), time.localtime()
    form = "%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, then)


def spell_contents(
    parts: Sequence[CheckpointPart], lacking: Mapping[str, str] | None = None
) -> str:
    """What is in a checkpoint, for people: `42 names, 1.2 GB; left out: f (a file)`."""
    names = {name for part in parts for name in part.names}
    size = sum(part.size for part in parts)
    left = {each.name: each.why for part in parts for each in part.left_out} | dict(lacking or {})
    states = sorted({name for part in parts for name in part.states})
    words = [f"{len(names)} name{'s' * (len(names) != 1)}, {spell_size(size)}"]
    if states:
        words.append(f"of {spell_list(states)} the state alone")
    if left:
        named = [f"{name} ({why})" for name, why in sorted(left.items())]
        words.append(f"left out: {spell_list(named)}")
    return "; ".join(words)


def spell_list(words: Sequence[str]) -> str:
    """These with commas; of many, how many more there are."""
    more = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
