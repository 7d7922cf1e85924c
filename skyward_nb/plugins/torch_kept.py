"""Process groups that go on when ranks form a new generation: the same objects and names, over new connections.

A `ProcessGroup` is a table of backends, and models (DDP's reducer, FSDP2, DeviceMesh, DTensor) hold that
object. Its backends are exchanged in place, so that all of these go on:

1. Each rank tells the others, over the new store, which groups it has and where it stood (`RankStanding`).
   From the same words all decide the same (`plan_of`): groups that all their ranks have, alike, go on; what
   only some have, as of a `new_group` that was cut, is dropped.
2. They make new backends for these, in the same order everywhere, then tell whether that went well. If it
   went wrong on one of them, all form a new default group instead, as before there was this.
3. What the cut left half-done is made good (`torch_models`).

A group takes 249 exchanges: torch keeps one backend of each kind for good, and its kinds are numbers of one
byte. Then all form a new group, and models must be made again. What is kept of a backend that is used no
more: its two idle threads (of NCCL also the store).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import msgspec

from skyward_nb.compat import torch_private
from skyward_nb.plugins import torch_models
from skyward_nb.plugins.lent_store import lent
from skyward_nb.plugins.torch_models import StepsMade
from skyward_nb.runtime.common_step import common_step
from skyward_nb.words.decoding import from_json
from skyward_nb.words.info import InstanceInfo

_LIMIT = timedelta(seconds=6)
"""Less than `pool/generations` waits for a new group."""
_next_types: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class GroupWords(msgspec.Struct, frozen=True):
    """A process group as one of its ranks has it: name, ranks, and the kinds of its backends.

    The default group is the one that `is_default`. It `can_go_on` if its backends are of known kinds and
    numbers for new ones are left.
    """

    name: str
    ranks: tuple[int, ...]
    kinds: tuple[str, ...]
    is_default: bool
    can_go_on: bool


class RankStanding(msgspec.Struct, frozen=True):
    """Where a rank stood when its group was cut.

    It had numbered `numbered` groups, and made `ended` optimizer steps in `run`, its last one; the last `partial_steps`
    of these may have had a part of their gradients only, and the next one, if it `is_torn`, was stopped in its midst.
    `models` is how far its models are, and `made` what `sky.mesh` and sums over some ranks have made of the group, by name,
    and by which ranks (none: all).
    """

    groups: tuple[GroupWords, ...]
    numbered: int
    run: int
    ended: int
    partial_steps: int
    is_torn: bool
    models: torch_models.ModelsStanding
    made: dict[str, tuple[int, ...]] = {}


def plan_of(standings: Sequence[RankStanding]) -> tuple[GroupWords, ...] | None:
    """The groups that go on, in the order in which all ranks exchange their backends; None if the default cannot.

    `standings` by rank.
    """
    had = [{each.name: each for each in standing.groups} for standing in standings]
    # Torch names further groups by how many there are: ranks that differ in that would never meet.
    begun = min(standing.numbered for standing in standings)
    everyone = tuple(range(len(standings)))
    plan = {
        group.name: group
        for groups in had
        for group in groups.values()
        if group.can_go_on
        and not _is_numbered_from(group, begun)
        and all(had[rank].get(group.name) == group for rank in group.ranks)
    }
    defaults = [each for each in plan.values() if each.is_default]
    if [each.ranks for each in defaults] != [everyone]:
        return None
    return tuple(sorted(plan.values(), key=lambda each: (not each.is_default, each.name)))


def made_by_all(made: Sequence[Mapping[str, tuple[int, ...]]]) -> frozenset[str]:
    """What all of its ranks have made, by rank what each has, and by which ranks (none: all)."""
    everyone = tuple(range(len(made)))
    return frozenset(
        name
        for each in made
        for name, ranks in each.items()
        if all(name in made[rank] for rank in ranks or everyone)
    )


def _is_numbered_from(group: GroupWords, number: int) -> bool:
    """Whether not all ranks had come to the making of a group: the code that made it was cut."""
    return group.name.isdecimal() and int(group.name) >= number


class KeptGroups:
    """The groups of this rank, at its place in a new generation, whose `store` all ranks reach."""

    def __init__(
        self,
        info: InstanceInfo,
        store: Any,
        connect: Callable[[Callable[[], None]], None],
        made: dict[str, tuple[int, ...]],
    ) -> None:
        import torch.distributed as dist

        self._info = info
        self._connect = connect
        self._made = made
        self.common: frozenset[str] = frozenset()
        """What all ranks of it have made of groups that go on."""
        kind: Any = dist.PrefixStore  # pyright: ignore[reportPrivateImportUsage]
        self._kind = kind
        self._store = kind(f"generation{info.generation}/kept", store)

    def go_on(self) -> str | None:
        """Exchange the backends of all groups that can go on, and make good what was half-done; in words.

        None if the default group has to be formed anew. The ranks of a generation all call this, or none.
        """
        own = self._standing()
        said = self._told("standing", msgspec.json.encode(own).decode())
        standings = [from_json(each, RankStanding) for each in said]
        plan = plan_of(standings)
        if plan is None:
            return None
        why = ""
        try:
            self._connect(lambda: self._exchange(plan))
        except Exception as error:  # noqa: BLE001 - told to the others, who form a new group then, too
            why = f"{type(error).__name__}: {error}"
        if any(self._told("exchanged", why)):
            return None
        torch_private.number_groups_from(max(each.numbered for each in standings))
        # Of ranks whose last runs were others, the numbers tell nothing.
        alike = len({each.run for each in standings}) == 1
        steps = [
            StepsMade(each.ended if alike else 0, each.partial_steps, each.is_torn)
            for each in standings
        ]
        words = torch_models.go_on([standing.models for standing in standings], steps)
        ended = {each.name for standing in standings for each in standing.groups}
        ended -= {each.name for each in plan}
        self.common = frozenset() if ended else made_by_all([each.made for each in standings])
        if ended:
            words += f"; {len(ended)} of the groups could not (of a backend of your own, or made on some of their ranks): make them again"
        return words

    def _standing(self) -> RankStanding:
        import torch.distributed as dist

        world = dist.group.WORLD
        groups = [group for group, _ in torch_private.groups()]
        words = [_words(group, is_default=group is world) for group in groups]
        numbered = torch_private.groups_numbered()
        models = torch_models.standing()
        return RankStanding(
            tuple(words),
            numbered,
            common_step.run,
            common_step.ended,
            common_step.partial_steps,
            common_step.is_torn,
            models,
            self._made,
        )

    def _told(self, what: str, own: str) -> list[str]:
        """What each rank says, by rank."""
        keys = [f"{what}/{rank}" for rank in range(self._info.world_size)]
        self._store.set(keys[self._info.rank], own)
        self._store.wait(keys, _LIMIT)
        return [self._store.get(key).decode() for key in keys]

    def _exchange(self, plan: tuple[GroupWords, ...]) -> None:
        goes_on = {each.name for each in plan}
        own = {group.group_name: group for group, _ in torch_private.groups()}
        for name, group in own.items():
            if name not in goes_on:
                _drop(group)
        for name in (each.name for each in plan if each.name in own):
            group, store = own[name], self._kind(f"{name}/", self._store)
            for old in torch_private.backends_of(group):
                number = _next_type(group)
                # NCCL needs it later, too: for communicators that are made when they are first used.
                with nullcontext(store) if old.name() == "nccl" else lent(store) as open_store:
                    below = self._kind(f"{old.name()}/", open_store)
                    torch_private.exchange_backend(group, old, below, number)
                _next_types[group] = number + 1
            torch_private.put_store(group, store)


def _next_type(group: Any) -> int:
    return _next_types.get(group, torch_private.FIRST_TYPE)


def _words(group: Any, *, is_default: bool) -> GroupWords:
    kinds, can_go_on = (), False
    with suppress(RuntimeError):  # of a backend of the user's own, which we do not know
        kinds = tuple(each.name() for each in torch_private.backends_of(group))
        is_room = _next_type(group) + len(kinds) - 1 <= torch_private.LAST_TYPE
        can_go_on = is_room and torch_private.is_exchangeable(group)
    ranks = torch_private.ranks_of(group)
    return GroupWords(group.group_name, ranks, kinds, is_default, can_go_on)


def _drop(group: Any) -> None:
    """Forget a group that only some of its ranks have; its connections are cut."""
    import torch.distributed as dist

    dist.destroy_process_group(group)
