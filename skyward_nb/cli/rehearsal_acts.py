"""What a rehearsal on rented machines plays: pools, each the smallest that shows something new, and what it must show. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from skyward_nb.words.errors import OptionError
from skyward_nb.words.findings import EFA, Findings, Reductions
from skyward_nb.words.offers import spell_dollars
from skyward_nb.words.units import near_words

_L4 = re.compile(r"\bL4\b")


class ActCheck(msgspec.Struct, frozen=True):
    """Something that an act must show: `what`, whether it `holds`, and what was `seen`."""

    what: str
    holds: bool
    seen: str = ""

    def __str__(self) -> str:
        seen = f": {self.seen}" if self.seen else ""
        return f"{'✓' if self.holds else '✗'} {self.what}{seen}"


class ActFindings(msgspec.Struct, frozen=True):
    """What a `check` found on an act's pool, and by rank the device on which a framework `computed` there."""

    check: Findings = Findings(ranks=())
    computed: dict[int, str] = {}


Judge = Callable[[ActFindings], Iterator[ActCheck]]


@dataclass(frozen=True)
class Act:
    """A pool with these `options`, for `minutes` at most, and what it must show.

    A framework `computes` on its ranks, if any is named; with `is_killed` its client is killed, and that is all.
    """

    name: str
    title: str
    options: tuple[str, ...]
    minutes: int
    judge: Judge
    computes: str = ""
    is_killed: bool = False


class ActEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How an act ended: its `checks`, the most `dollars` it may have cost, and in `trouble` why it showed no more."""

    name: str
    checks: tuple[ActCheck, ...] = ()
    dollars: float = 0.0
    seconds: float = 0.0
    trouble: str = ""

    @property
    def holds(self) -> bool:
        """Whether all was shown."""
        return not self.trouble and all(each.holds for each in self.checks)


# ── what acts must show ─────────────────────────────────────────────────────────────────


def _on_machines(count: int, found: ActFindings) -> Iterator[ActCheck]:
    ranks = found.check.ranks
    hosts = dict.fromkeys(each.host for each in ranks)
    is_so = len(hosts) == len(ranks) == count
    yield ActCheck(f"{count} machine{'s' * (count > 1)}, a rank on each", is_so, ", ".join(hosts))


def _on_gpu(framework: str, found: ActFindings) -> Iterator[ActCheck]:
    for each in found.check.ranks:
        device = found.computed.get(each.rank, "")
        versions = ", ".join(f"{name} {version}" for name, version in each.versions.items())
        seen = [
            *each.troubles.values(),
            device or f"nothing was computed on its {each.device}",
            versions,
        ]
        holds = bool(_L4.search(device)) and framework in each.joined and not each.troubles
        yield ActCheck(f"{framework} computes on an L4 on rank {each.rank}", holds, "; ".join(seen))


def _connected(found: ActFindings) -> Iterator[ActCheck]:
    ways = [way for each in (found.check.reach or {}).values() for way in each]
    troubles = [way.trouble for way in ways if way.trouble]
    yield ActCheck("ranks reach one another", bool(ways) and not troubles, "; ".join(troubles))
    if found.check.connection is None:
        return
    link = found.check.connection.link
    seen = f"{link.round_trip * 1e3:.2f} ms there and back, {link.speed * 8 / 1e9:.1f} Gbit/s"
    yield ActCheck("a TCP connection between them is measured", link.speed > 0, seen)


def _reduced(found: ActFindings) -> Iterator[ActCheck]:
    reductions = found.check.reductions or Reductions()
    best = max((each.bus_speed for each in reductions.timings), default=0.0)
    seen = f"{best * 8 / 1e9:.1f} Gbit/s at best" if best else reductions.why_not
    is_so = best > 0 and all("nccl" in each for each in found.computed.values())
    yield ActCheck("they add tensors by NCCL", is_so, seen)
    ranks = found.check.ranks
    devices = ", ".join(each.versions.get(EFA, "none") for each in ranks)
    yield ActCheck(
        "each machine has an EFA device",
        bool(ranks) and all(EFA in each.versions for each in ranks),
        devices,
    )


def _cpus(found: ActFindings) -> Iterator[ActCheck]:
    yield from _on_machines(2, found)
    yield from _connected(found)


def _torch(found: ActFindings) -> Iterator[ActCheck]:
    yield from _on_machines(1, found)
    yield from _on_gpu("torch", found)


def _jax(found: ActFindings) -> Iterator[ActCheck]:
    yield from _on_machines(1, found)
    yield from _on_gpu("jax", found)


def _efa(found: ActFindings) -> Iterator[ActCheck]:
    yield from _on_machines(2, found)
    yield from _on_gpu("torch", found)
    yield from _connected(found)
    yield from _reduced(found)


def _nothing(_found: ActFindings) -> Iterator[ActCheck]:
    yield from ()


_CPU = ("instance_type=c6i.large", "framework=none")
_GPU = ("instance_type=g6.xlarge", "accelerator=L4", "spot=no")
_EFA = ("nodes=2", "instance_type=g6.8xlarge", "accelerator=L4", "spot=no", "framework=torch")
ACTS = (
    Act("cpu", "two machines, and the way between them", ("nodes=2", *_CPU, "spot=no"), 15, _cpus),
    Act("torch", "PyTorch on a GPU", (*_GPU, "framework=torch"), 25, _torch, "torch"),
    Act("jax", "JAX on a GPU", (*_GPU, "framework=jax"), 25, _jax, "jax"),
    Act("efa", "two GPUs of two machines that have EFA", _EFA, 25, _efa, "torch"),
    Act("killed", "a spot machine whose client is killed", (*_CPU, "spot=yes", "idle=1m"), 15, _nothing, is_killed=True),
)  # fmt: skip
"""In the order in which they are played."""


# ── what is played, and for how much ────────────────────────────────────────────────────


def chosen(names: Sequence[str]) -> tuple[Act, ...]:
    """The acts of these names, in their own order, or all; raises `OptionError`."""
    known = [each.name for each in ACTS]
    for name in names:
        if name not in known:
            near = near_words(name, known) or f": the acts are {', '.join(known)}"
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
