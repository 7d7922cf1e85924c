"""`%sky debug`: pdb over the frames of a rank that stopped, with the notebook's own input box."""

from __future__ import annotations

import sys

from IPython.core.error import StdinNotImplementedError

from skyward_nb.notebook.named_pools import live_pool
from skyward_nb.notebook.session import Session
from skyward_nb.options.option_line import parse_verb
from skyward_nb.pool.pool import Pool
from skyward_nb.words.controls import spelt
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.ranks import parse_ranks, spell_ranks

_ENDS = ("q", "quit", "exit", "EOF")
_HELP = "where, up, down, list, args, p EXPRESSION as in pdb; q ends it"


def debug(session: Session, line: str) -> None:
    """Look at the frames and names of a rank whose run failed or was stopped."""
    asked = parse_verb("debug", line)
    pool = live_pool(session, session.finder.name_of(asked))
    rank, place = _begin(session, pool, asked.logs.rank)
    print(spelt(place))
    told = f"\n{_HELP}"
    while True:
        try:
            said = input(f"rank {rank}> " if not told else f"{told.strip()}\nrank {rank}> ").strip()
        except (EOFError, KeyboardInterrupt):
            return
        except StdinNotImplementedError:  # a program that executes notebooks
            print(spelt(str(session.ask(pool, "debugging", "frames()", (rank,))[rank])))
            return
        if said in _ENDS:
            return
        told = ""
        answer = session.ask(pool, "debugging", f"command({said!r})", (rank,))[rank]
        print(spelt(str(answer)))


def failed_last() -> tuple[str, int] | None:
    """The pool and the rank on which the last exception of this notebook was raised, if it was one."""
    found = getattr(getattr(sys, "last_value", None), "failed_on", None)
    return found if isinstance(found, tuple) else None


def _begin(session: Session, pool: Pool, said: str) -> tuple[int, str]:
    """The rank that is meant, else the one that failed last, else the first with frames; its innermost frame.

    Raises `OptionError` for several, and `PoolError` where there are no frames.
    """
    world = pool.spec.world_size
    ranks = parse_ranks("rank", said, world) if said else pool.ranks
    if said and len(ranks) != 1:
        raise OptionError("rank", f"rank={said}: one rank is debugged at a time")
    last = failed_last()
    if not said and last is not None and last[0] == pool.pool_id and last[1] in ranks:
        ranks = (last[1],)
    there = session.ask(pool, "debugging", "begin()", ranks).items()
    kept = [(rank, str(place)) for rank, place in there if place]
    if not kept:
        raise PoolError(
            pool.spec.name,
            f"rank{'s' * (len(ranks) != 1)} {spell_ranks(ranks)} of pool {pool.spec.name!r} did not stop in "
            "the last cell there: frames are kept of a run that failed or was interrupted, until the next one",
        )
    return kept[0]
