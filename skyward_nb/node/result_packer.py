"""The values that a rank returns at a run's end: packed, and gathered first if they are sharded over ranks."""

from __future__ import annotations

from msgspec import to_builtins
from msgspec.structs import replace

from skyward_nb.node.mailbox import Mailbox
from skyward_nb.node.uplink import Uplink
from skyward_nb.pickling import reducers
from skyward_nb.pickling.home_namespace import home
from skyward_nb.pickling.payload import Bundle, pack, pack_plain, spread_parts
from skyward_nb.protocol.commands import Run
from skyward_nb.protocol.events import RankDone, ShardedResult
from skyward_nb.protocol.message_parts import RUN_VALUE, Packed, Unsendable
from skyward_nb.runtime.last_value import shown
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.bounds import bounded
from skyward_nb.words.errors import PayloadError
from skyward_nb.words.profile import CommProfile


class ResultPacker:
    """Packs values of a rank for the way home."""

    def __init__(self, uplink: Uplink, mailbox: Mailbox, store: BlobStore) -> None:
        self._uplink = uplink
        self._mailbox = mailbox
        self._store = store

    def with_values(self, done: RankDone, command: Run, value: object) -> RankDone:
        """Add the run's value and the names to pull, those that can be returned."""
        try:
            return self._with_values(done, command, value)
        finally:
            # A checkpoint packs the same objects later.
            reducers.gathered.clear()
            reducers.why_not_gathered = ""

    def _with_values(self, done: RankDone, command: Run, value: object) -> RankDone:
        if command.value_from:
            self._gather(done, command, value)
        if done.rank not in command.value_from:
            return done
        troubles: list[Unsendable] = []
        named = {name: home()[name] for name in command.pull if name in home()}
        packed = None
        if command.wants_value:
            packed = self._pack(RUN_VALUE, value, troubles, command)
            troubles = [replace(trouble, shown=shown(value)) for trouble in troubles]
        pulled = {
            name: each
            for name, found in named.items()
            if (each := self._pack(name, found, troubles, command)) is not None
        }
        return replace(
            done,
            value=packed,
            pulled=pulled,
            missing=tuple(name for name in command.pull if name not in named),
            unsendable=tuple(troubles),
        )

    def _gather(self, done: RankDone, command: Run, value: object) -> None:
        """Gather sharded values if all ranks are to; else note why not.

        Ranks whose values are not returned take part, too.
        """
        here = [home()[name] for name in command.pull if name in home()]
        parts, rest_is_well = spread_parts([value if command.wants_value else None, *here])
        if not rest_is_well:
            # The error of the rest is reported.
            reducers.gathered.update({id(part): None for part in parts})
            return
        if not parts or not all(map(reducers.all_take_part, parts)):
            return
        words = tuple(map(reducers.describe, parts))
        self._uplink.emit(ShardedResult(command.run, done.rank, words))
        order = self._mailbox.next_gather(command.run)
        if order is None or order.why:
            reducers.why_not_gathered = order.why if order is not None else "this was interrupted"
            return
        for part in parts:
            reducers.gathered[id(part)] = reducers.gather(part)

    def _pack(
        self, name: str, value: object, troubles: list[Unsendable], command: Run
    ) -> Packed | None:
        kind = type(value).__name__
        try:
            take_apart = pack_plain if command.only_values else pack
            # The notebook drops it once it has it: an equal one of another run lies there by itself.
            bundle = take_apart(name, value, salt=(command.run,))
            if command.limit is None or bundle.size <= command.limit:
                return bundle.stow(self._store)
            troubles.append(Unsendable(name, name, kind, "", bundle.size))
        except PayloadError as error:
            troubles.append(Unsendable(name, error.path, error.type_name, bounded(error.reason)))
        except OSError as error:
            troubles.append(Unsendable(name, name, kind, error.strerror or str(error)))
        return None

    def packed_profile(self, profile: CommProfile, limit: int | None) -> Packed:
        """A profile as it goes home; without its traces if they do not fit."""
        bundle = _in_plain_parts(profile)
        if limit is not None and bundle.size > limit:
            why = "the trace is over the limit= of what may come back"
        else:
            try:
                return bundle.stow(self._store)
            except OSError as error:
                why = f"no room for the trace: {error.strerror}"
        less = replace(profile, trace=b"", events=b"", trouble=why)
        return _in_plain_parts(less).stow(self._store)


def _in_plain_parts(profile: CommProfile) -> Bundle:
    return pack_plain("the profile", to_builtins(profile, builtin_types=(bytes,)))
