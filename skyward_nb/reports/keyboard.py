"""Lines that a person types for a rank at a breakpoint, in the notebook's own input box or the terminal."""

from __future__ import annotations

import sys
import threading

from IPython.core.getipython import get_ipython

from skyward_nb.pickling.payload import pack
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.commands import FeedValue
from skyward_nb.protocol.events import ValueWanted
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.words.controls import spelt


def answer(pool: Pool, event: ValueWanted) -> None:
    """Ask for the line that a rank wants, and send it; an interrupt meanwhile interrupts the run."""
    said: str | None = None
    try:
        if _can_type():
            if text := event.prompt.strip("\n "):
                print(spelt(text))
            with pool.lines.board.outside(for_user=True):
                said = input(f"rank {event.rank}> ")
            pool.lines.begin_listening()  # what machines said meanwhile was not late
    except KeyboardInterrupt:
        pool.interrupt(event.run)
        return
    except (EOFError, OSError, NotImplementedError):
        """Nobody can: a program executes this notebook, or the input has ended."""
    packed: Packed | None = None
    if said is not None:
        with pool.closing.reaching():
            store = pool.context.stores.of((event.rank,))
            packed = pack("the line", said).stow(store)
    pool.lines.send(FeedValue(event.run, (event.rank,), event.stream, packed))


def _can_type() -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False  # a run in the background
    return get_ipython() is not None or sys.stdin.isatty()
