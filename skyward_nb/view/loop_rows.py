"""How many rows the loops of a rank take: of many that ended the last ones have a row each. Pure.

Once loops took so many rows they keep them: a table that shrinks would move the page below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from skyward_nb.protocol.events import Progress

_MOST_DONE, _SHOWN_DONE = 3, 2
"""Of more finished loops than the first, so many of the last are told apart."""


def shown_done(done: int, gone: int, others: int, rows: int) -> int:
    """How many of the finished loops have a row each; the others of them, and those that are `gone`, share one.

    There are `done` finished ones, and `others` have rows, too; together they had as many as `rows` already.
    """
    if not gone and (done <= _MOST_DONE or done + others <= rows):
        return done
    return min(done, max(_SHOWN_DONE, rows - others - 1))


def loop_rows(bars: Sequence[Progress], gone: int, hidden: int, rows: int) -> int:
    """The rows of these loops, where they had as many as `rows` already."""
    done = sum(bar.over for bar in bars)
    others = len(bars) - done + (hidden > 0)
    shown = shown_done(done, gone, others, rows)
    return max(rows, shown + others + (done + gone > shown))
