"""What ranks know of their names, for Tab and tooltips in cells that run there.

Rank 0 is asked while the pool is idle; while it is busy, names alone are known. Nothing is started for an
answer, and the notebook's own names are left to IPython.
"""

from __future__ import annotations

import builtins
import contextlib
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from IPython.utils.tokenutil import token_at_cursor

from skyward_nb.notebook.session import Session
from skyward_nb.options.option_line import ParsedOptions, parse
from skyward_nb.pool.pool import Pool
from skyward_nb.words.errors import OptionError, PoolBusy, SkyError

T = TypeVar("T")
_NO_ANSWER = (SkyError, KeyError, KeyboardInterrupt)
_PATIENCE = 0.5
"""Seconds that a thread waits for the kernel's main thread."""
_KEY = re.compile(r"([^\W\d]\w*)[\w.]*\[[\"'][^\"']*$")


def pool_of(session: Session, text: str) -> Pool | None:
    """The pool that is up on which a cell would run; None where it runs here, or none is up."""
    head, _, _ = text.lstrip().partition("\n")
    asked = ParsedOptions()
    if head.startswith("%%sky_remote"):
        try:
            asked = parse(head.removeprefix("%%sky_remote"))
        except OptionError:
            return None
    elif not session.pools.every_cell.is_on or re.match(r"%%local\b", head):
        return None
    if threading.current_thread() is not threading.main_thread():
        return session.pools.get(session.finder.name_of(asked))
    return session.pools.live(session.finder.name_of(asked))


def completions(session: Session, text: str, line: str, token: str) -> tuple[list[str], bool]:
    """What may stand in place of `token` at the end of `line` of a cell `text`, of what ranks alone know.

    And whether that is all there is: attributes and keys of what they have.
    """
    pool = pool_of(session, text)
    if pool is None:
        return [], False
    here = session.shell.user_ns
    made = pool.ledger.names_made_on_ranks()
    names = [name for name in made if name not in here]
    key = _KEY.search(line)
    if not key and "." not in token:
        return [name for name in names if name.startswith(token)], False
    root = key[1] if key else token.partition(".")[0]
    if root in here and root not in made:
        return [], False
    with contextlib.suppress(*_NO_ANSWER):
        return list(_asked(session, pool, f"completions({line!r}, {token!r})")), True
    return [], False


def inspected(session: Session, text: str, cursor: int, detail: int) -> Mapping[str, str] | None:
    """What rank 0 tells of the name at the cursor, by MIME type; None where IPython is to be asked."""
    pool = pool_of(session, text)
    name = token_at_cursor(text, cursor)
    root = name.partition(".")[0]
    if pool is None or not root:
        return None
    here = session.shell.user_ns
    made = pool.ledger.names_made_on_ranks()
    if (root in here or hasattr(builtins, root)) and root not in made:
        return None
    try:
        return _asked(session, pool, f"inspected({name!r}, {detail})")
    except _NO_ANSWER:
        return (
            {"text/plain": f"{root}: a name of the ranks, which are busy"} if root in made else None
        )


def _asked(session: Session, pool: Pool, call: str) -> Any:
    """Rank 0's answer; raises one of `_NO_ANSWER` while it, or the kernel, is busy."""

    def ask() -> Any:
        return session.ask(pool, "name_help", call, (0,))[0]

    if threading.current_thread() is threading.main_thread():
        return ask()
    loop = getattr(getattr(session.shell, "kernel", None), "io_loop", None)
    if loop is not None:
        with contextlib.suppress(TimeoutError):
            return _between_cells(loop, ask)
    raise PoolBusy(pool.spec.name, "another thread may use it")


def _between_cells(loop: Any, ask: Callable[[], T]) -> T:
    """What is answered in the kernel's main thread, for a thread such as VS Code's; raises TimeoutError while a cell runs."""
    answer: Future[T] = Future()

    def take_turn() -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - whatever it is, the thread that asks raises it
                answer.set_exception(error)

    loop.add_callback(take_turn)
    try:
        return answer.result(_PATIENCE)
    finally:
        answer.cancel()
