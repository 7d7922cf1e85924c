"""Why a run does not end, in one sentence and in stacks. Pure.

Ranks that wait in a collective wait for the ranks that do not; the sentence names these and their
places. `rank_locations` knows where a single rank is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skyward_nb.hangs.rank_locations import RankLocation
from skyward_nb.words.ranks import count_ranks, ranks_by

_MOST_PLACES = 4
_MOST_STACKS = 8
_BACKWARD = "backward"
"""A thread in autograd's engine either averages gradients over ranks or computes: stacks do not tell which."""
_PAIRWISE = ("send", "recv", "work.wait", "store.get")
"""Calls between pairs of ranks: different ranks may well wait in different ones."""


@dataclass(frozen=True)
class StalledRun:
    """A run at one moment: ranks that still run, how others `ended`, and ranks beside the run.

    `ended` holds `finished`, `failed`, `died` or `ended`; `outside` are ranks of the pool that
    do not run the cell. `is_past` says that the moment is over.
    """

    running: Mapping[int, RankLocation]
    ended: Mapping[int, str] = field(default_factory=dict)
    outside: tuple[int, ...] = ()
    is_past: bool = True

    def verb(self, past: str, present: str, ranks: Sequence[int]) -> str:
        """`was` or `is`, `were` or `are`: the forms for several ranks stand after a slash."""
        forms = (past if self.is_past else present).split("/")
        return forms[-1] if len(ranks) > 1 else forms[0]


def sentence(halt: StalledRun) -> str:
    """Which rank waits where and for which, in one sentence; "" when no rank runs."""
    waiting = _waiting(halt.running)
    others = {rank: at for rank, at in halt.running.items() if at.waits_in not in waiting}
    if not halt.running:
        return ""
    if not waiting:
        return "; ".join([", ".join(_places(halt, others)), *_endings(halt)])
    if len(waiting) > 1:
        return _at_odds(halt, waiting, others)
    ((name, ranks),) = waiting.items()
    who = _who(halt, ranks)
    waits = halt.verb("waited/waited", "waits/wait", ranks)
    if others or halt.ended:
        which = ", which "
        missing = ", and ".join([*_places(halt, others, which), *_endings(halt, which)])
        return f"{who} {waits} in {name} for {missing}"
    if halt.outside:
        runs = "does" if len(halt.outside) == 1 else "do"
        return f"{who} {waits} in {name}, and {count_ranks(halt.outside)} {runs} not run this cell"
    return f"{who} {_all_in(halt, name, ranks)}"


def is_a_hang(halt: StalledRun) -> bool:
    """Whether ranks wait in a collective for others, or in different ones; not where gradients are computed."""
    waiting = _waiting(halt.running)
    if not waiting or waiting.keys() == {_BACKWARD}:
        return False
    waits = sum(len(ranks) for ranks in waiting.values())
    missing = halt.ended or halt.outside or waits < len(halt.running)
    return len(waiting) > 1 or waits > 1 or bool(missing)


def report(halt: StalledRun) -> str:
    """Each distinct stack once, with its ranks; innermost first."""
    alike = ranks_by(halt.running)
    blocks = [
        "\n".join([_title(ranks, at), *(f"  {line}" for line in _lines(at))])
        for at, ranks in list(alike.items())[:_MOST_STACKS]
    ]
    if (more := list(alike.values())[_MOST_STACKS:]) and blocks:
        ranks = [rank for each in more for rank in each]
        blocks.append(f"{len(more)} more stacks, of {count_ranks(ranks)}, are left out")
    return "\n".join(blocks)


def doing(at: RankLocation, ranks: Sequence[int]) -> str:
    """The work of ranks that had to be killed: `was in Cell In[4], line 7: time.sleep(60)`."""
    halt = StalledRun({})
    if at.waits_in:
        return f"waited in {at.waits_in}" + (f", {at.place}" if at.place else "")
    return _does(halt, _doing(at), ranks)


def spell_span(seconds: float) -> str:
    """A time as it is given on a line: `10 s`, `10 min`, `1 h 30 min`."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h" if hours else "", f"{minutes} min" if minutes else ""]
    parts.append(f"{rest} s" if rest and not hours else "")
    return " ".join(part for part in parts if part)


def _waiting(running: Mapping[int, RankLocation]) -> dict[str, list[int]]:
    """Ranks by the collective that they wait in."""
    found = ranks_by({rank: at.waits_in for rank, at in running.items() if at.waits_in})
    if len(found) > 1:
        found.pop(_BACKWARD, None)
    return found


def _at_odds(
    halt: StalledRun, waiting: Mapping[str, list[int]], others: Mapping[int, RankLocation]
) -> str:
    """For ranks that wait in different collectives, each for all the others."""
    parts = [
        f"{count_ranks(ranks)} {halt.verb('waited', 'waits/wait', ranks)} in {name}"
        for name, ranks in waiting.items()
    ]
    words = ", ".join(parts)
    if len([name for name in waiting if name not in _PAIRWISE]) > 1:
        words += ": they do not call the same collectives in the same order"
    elsewhere = [", ".join(_places(halt, others))] if others else []
    return "; ".join([words, *elsewhere, *_endings(halt)])


def _all_in(halt: StalledRun, name: str, ranks: Sequence[int]) -> str:
    """For ranks that are all in the same collective: the likely reason."""
    if name == _BACKWARD:
        are = halt.verb("was/were", "is/are", ranks)
        return f"{are} in backward, computing gradients or averaging them over ranks"
    waits = halt.verb("waited", "waits/wait", ranks)
    if len(ranks) == 1 or name in _PAIRWISE:
        return f"{waits} in {name}"
    places = {halt.running[rank].place for rank in ranks}
    if len(places) > 1:
        return (
            f"{waits} in {name}, called in different places: they do not all call the same "
            "collectives"
        )
    return (
        f"{waits} in {name}: they do not all call the same collectives (equally often, with equal "
        "shapes, in the same group), or it takes this long"
    )


def _who(halt: StalledRun, ranks: Sequence[int]) -> str:
    is_all = not halt.ended and not halt.outside and len(ranks) == len(halt.running)
    return "all ranks" if is_all and len(ranks) > 1 else count_ranks(ranks)


def _endings(halt: StalledRun, joint: str = " ") -> list[str]:
    """`rank 3 had died`, or, with the joint `, which `, `rank 3, which had died`."""
    return [
        f"{count_ranks(ranks)}{joint}{halt.verb('had', 'has/have', ranks)} {how}"
        for how, ranks in ranks_by(halt.ended).items()
    ]


def _places(halt: StalledRun, running: Mapping[int, RankLocation], joint: str = " ") -> list[str]:
    """`ranks 0-1 were in …`, `rank 2 did not answer`, `ranks 3-9 elsewhere`; `joint` as of `_endings`."""
    groups = list(ranks_by({rank: _doing(at) for rank, at in running.items()}).items())
    parts = [
        f"{count_ranks(ranks)}{joint}{_does(halt, at, ranks)}"
        for at, ranks in groups[:_MOST_PLACES]
    ]
    if rest := [rank for _, ranks in groups[_MOST_PLACES:] for rank in ranks]:
        parts.append(f"{count_ranks(rest)} elsewhere")
    return parts


def _doing(at: RankLocation) -> tuple[bool, str]:
    return at.answered, at.place


def _does(halt: StalledRun, doing: tuple[bool, str], ranks: Sequence[int]) -> str:
    answered, place = doing
    if not answered:
        not_ = halt.verb("did not answer", "does not answer/do not answer", ranks)
        whose = "its process is" if len(ranks) == 1 else "their processes are"
        return f"{not_} ({whose} stopped, or stuck in the system)"
    are = halt.verb("was/were", "is/are", ranks)
    within = "" if place.startswith(("at ", "taking ", "done ", "raising ")) else "in "
    return f"{are} {within}{place}"


def _title(ranks: Sequence[int], at: RankLocation) -> str:
    words = count_ranks(ranks)
    if not at.answered:
        return f"{words}: no answer"
    return f"{words}, in {at.waits_in}:" if at.waits_in else f"{words}:"


def _lines(at: RankLocation) -> list[str]:
    lines = [str(spot) for spot in at.spots]
    if at.busy:
        lines.append(at.busy)
    if at.more:
        lines.append(f"and {at.more} more further out")
    for spots in at.threads:
        lines += ["another thread:", *(f"  {spot}" for spot in spots)]
    return lines
