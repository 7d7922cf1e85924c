"""What a rehearsal on rented machines plays: pools, each the smallest that shows something new, and what it must show. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from skyward_nb.words.errors import OptionError
from skyward_nb.words.findings import EFA, Findings, RankFacts
from skyward_nb.words.offers import spell_dollars
from skyward_nb.words.units import near_words


class Shown(msgspec.Struct, frozen=True):
    """Something that an act must show: `what`, whether it `holds`, and what was `seen`."""

    what: str
    holds: bool
    seen: str = ""

    def __str__(self) -> str:
        seen = f": {self.seen}" if self.seen else ""
        return f"{'✓' if self.holds else '✗'} {self.what}{seen}"


Judge = Callable[[Findings], Iterator[Shown]]


@dataclass(frozen=True)
class Act:
    """A pool with these `options`, for `minutes` at most, and what its check must show; with `is_killed`, its client is killed instead."""

    name: str
    title: str
    options: tuple[str, ...]
    minutes: int
    judge: Judge
    is_killed: bool = False


class ActEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How an act ended: what it has `shown`, the most `dollars` it may have cost, and in `trouble` why it showed no more."""

    name: str
    shown: tuple[Shown, ...] = ()
    dollars: float = 0.0
    seconds: float = 0.0
    trouble: str = ""

    @property
    def holds(self) -> bool:
        """Whether all was shown."""
        return not self.trouble and all(each.holds for each in self.shown)


# ── what acts must show ─────────────────────────────────────────────────────────────────


def _on_machines(count: int, found: Findings) -> Iterator[Shown]:
    hosts = dict.fromkeys(each.host for each in found.ranks)
    is_so = len(hosts) == len(found.ranks) == count
    yield Shown(f"{count} machine{'s' * (count > 1)}, a rank on each", is_so, ", ".join(hosts))


def _on_gpu(framework: str, found: Findings) -> Iterator[Shown]:
    for each in found.ranks:
        versions = ", ".join(f"{name} {version}" for name, version in each.versions.items())
        troubles = "; ".join(each.troubles.values())
        yield Shown(
            f"{framework} has an NVIDIA L4 on rank {each.rank}",
            "L4" in each.device and _runs(framework, each),
            troubles or f"{each.device}, {versions}",
        )


def _runs(framework: str, rank: RankFacts) -> bool:
    return framework in rank.joined and not rank.troubles


def _connected(found: Findings) -> Iterator[Shown]:
    ways = [way for each in (found.reach or {}).values() for way in each]
    troubles = [way.trouble for way in ways if way.trouble]
    yield Shown("ranks reach one another", bool(ways) and not troubles, "; ".join(troubles))
    if found.connection is None:
        return
    link = found.connection.link
    seen = f"{link.round_trip * 1e3:.2f} ms there and back, {link.speed * 8 / 1e9:.1f} Gbit/s"
    yield Shown("a TCP connection between them is measured", link.speed > 0, seen)


def _reduced(found: Findings) -> Iterator[Shown]:
    timings = found.reductions.timings if found.reductions else ()
    why = found.reductions.why_not if found.reductions else ""
    best = max((each.bus_speed for each in timings), default=0.0)
    yield Shown("their GPUs add tensors by NCCL", best > 0, why or f"{best / 1e9:.2f} GB/s at best")
    seen = ", ".join(dict.fromkeys(each.versions.get(EFA, "none") for each in found.ranks))
    there = all(EFA in each.versions for each in found.ranks)
    yield Shown("each machine has an EFA device", there, seen)


def _cpus(found: Findings) -> Iterator[Shown]:
    yield from _on_machines(2, found)
    yield from _connected(found)


def _torch(found: Findings) -> Iterator[Shown]:
    yield from _on_machines(1, found)
    yield from _on_gpu("torch", found)


def _jax(found: Findings) -> Iterator[Shown]:
    yield from _on_machines(1, found)
    yield from _on_gpu("jax", found)


def _efa(found: Findings) -> Iterator[Shown]:
    yield from _on_machines(2, found)
    yield from _on_gpu("torch", found)
    yield from _connected(found)
    yield from _reduced(found)


def _nothing(_found: Findings) -> Iterator[Shown]:
    yield from ()


ACTS = (
    Act("cpu", "two machines, and the way between them",
        ("nodes=2", "instance_type=c6i.large", "spot=no", "framework=none"), 15, _cpus),
    Act("torch", "PyTorch on a GPU",
        ("instance_type=g6.xlarge", "spot=no", "accelerator=L4", "framework=torch"), 25, _torch),
    Act("jax", "JAX on a GPU",
        ("instance_type=g6.xlarge", "spot=no", "accelerator=L4", "framework=jax"), 25, _jax),
    Act("efa", "two GPUs of two machines, over EFA",
        ("nodes=2", "instance_type=g6.8xlarge", "spot=no", "accelerator=L4", "framework=torch"), 25, _efa),
    Act("killed", "a spot machine whose client is killed",
        ("instance_type=c6i.large", "spot=yes", "framework=none", "idle=1m"), 15, _nothing, is_killed=True),
)  # fmt: skip
"""The cheapest first."""


# ── what is played, and for how much ────────────────────────────────────────────────────


def chosen(names: Sequence[str]) -> tuple[Act, ...]:
    """The acts of these names, in their own order, or all; raises `OptionError`."""
    known = [each.name for each in ACTS]
    for name in names:
        if name not in known:
            near = near_words(name, known) or f": there is {', '.join(known)}"
            raise OptionError(name, f"there is no act {name!r}{near}")
    return tuple(each for each in ACTS if not names or each.name in names)


@dataclass(frozen=True)
class PlannedAct:
    """An act and the `hourly` price of its machines in dollars."""

    act: Act
    hourly: float

    @property
    def most(self) -> float:
        """The most dollars that it may cost, as its machines end by then."""
        return self.hourly * self.act.minutes / 60

    def spent(self, seconds: float) -> float:
        """The most dollars of as many seconds."""
        return min(self.most, self.hourly * seconds / 3600)


def plan_lines(plan: Sequence[PlannedAct]) -> Iterator[str]:
    """What will be rented, for how long, and for how much."""
    width = max(len(each.act.name) for each in plan)
    for each in plan:
        act = each.act
        yield (
            f"{act.name:{width}}  {act.title}: {' '.join(act.options)}; {spell_dollars(each.hourly)} / h, "
            f"{act.minutes} min at most: {spell_dollars(each.most)}"
        )
    total = spell_dollars(sum(each.most for each in plan))
    yield f"all of it: at most {total}, with disks, addresses and traffic on top"


def check_budget(plan: Sequence[PlannedAct], budget: float) -> None:
    """Raise `OptionError` where the plan may cost more than the budget."""
    most = sum(each.most for each in plan)
    if most > budget:
        fits = [each.act.name for each in plan if each.most <= budget]
        fewer = f", or name fewer: skyward-nb rehearse aws {fits[0]}" if fits else ""
        raise OptionError(
            "max_cost",
            f"these acts may cost {spell_dollars(most)}, and max_cost is {spell_dollars(budget)}: "
            f"max_cost={math.ceil(most)}{fewer}",
        )


def last_line(ends: Sequence[ActEnd], planned: int) -> str:
    """The verdict."""
    good = sum(each.holds for each in ends)
    cost = spell_dollars(sum(each.dollars for each in ends))
    return f"{good} of {planned} acts have shown what they must; they cost at most {cost}"
