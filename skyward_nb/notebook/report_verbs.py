"""The verbs of `%sky` that report: `status`, `cost`, `logs`, `check`, `show`."""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path

from skyward_nb.logs.log_files import RUN_FORM, find
from skyward_nb.logs.node_log import agent_logs
from skyward_nb.notebook.named_pools import live_pool
from skyward_nb.notebook.session import Session
from skyward_nb.options.option_help import CHECKS
from skyward_nb.options.option_line import LogOptions, parse_verb
from skyward_nb.picture.record import cost_of
from skyward_nb.reports import node_logs
from skyward_nb.reports.hang_check import standing, standing_lines, subjects
from skyward_nb.reports.pool_check import survey, survey_lines
from skyward_nb.reports.run_logs import follow_log, print_log, save_log, spell_run
from skyward_nb.reports.status import balance, cost_words, own_row, row_lines, row_of
from skyward_nb.show.canvas import alone, as_of_now
from skyward_nb.show.canvas_choice import draw_once
from skyward_nb.show.kept_pictures import find_picture
from skyward_nb.view.run_view import RunView
from skyward_nb.words.errors import OptionError
from skyward_nb.words.ranks import parse_ranks
from skyward_nb.words.units import near_words

_ANY_WORLD = 1 << 16
_PAUSE = 0.1


def status(session: Session, line: str) -> None:
    """Print the pools of this notebook, and others that are up."""
    only = parse_verb("status", line).pool.name
    names = [name for name in session.pools if session.pools.live(name) and only in (None, name)]
    there = [left for left in session.pools.others() if only in (None, left.entry.spec.name)]
    lost = [each for each in session.pools.losses() if each.how and only in (None, each.spec.name)]
    if only and not there and not lost:
        live_pool(session, only)
    if mark := session.pools.every_cell.mark:
        print(on_words(mark))
    if not names and not there and not lost:
        print("no pool is up; a %%sky_remote cell or %sky up makes one")
    for each in lost:
        print(f"{each.how}. {each.advice}: {each.spec}")
    for name in names:
        pool = session.pools[name]
        gone = session.pools.look(pool)
        for said in row_lines(own_row(pool, gone, balance(session.pools.displays(pool).last()))):
            print(said)
    for left in there:
        print(next(row_lines(row_of(left))))


def on_words(mark: str) -> str:
    """What to know while every cell runs on ranks."""
    return (
        f"{mark.replace('every cell', 'every cell runs on ranks', 1)}; %%local, magics and ! here; "
        "%sky off ends it"
    )


def cost(session: Session, line: str) -> None:
    """Print the costs of pools that are up, and of those that ended."""
    only = parse_verb("cost", line).pool.name
    names = [
        name
        for name in session.pools
        if (pool := session.pools.live(name)) and only in (None, name, pool.pool_id)
    ]
    bills = [(name, bill) for name in names if (bill := session.pools[name].bill)]
    there = session.pools.others()
    bills += [
        (
            left.entry.pool_id if left.entry.spec.name in session.pools else left.handle(there),
            left.entry.bill,
        )
        for left in there
        if left.entry.bill and only in (None, left.entry.spec.name, left.entry.pool_id)
    ]
    for name, bill in bills:
        words = f"{name}: {cost_words(cost_of(bill, time.time()))}"
        print(" · ".join(filter(None, (words, bill.what, bill.source))))
    paid = [each for each in session.pools.paid if only in (None, each.name)]
    for each in paid:
        print(f"{each.name}: {each.how}, and has cost {each.spent} · {each.bill.what}")
    if not bills and not paid:
        known = {word for left in there for word in (left.entry.spec.name, left.entry.pool_id)}
        if only and not names and only not in known:
            live_pool(session, only)
        print("no pool that is up costs anything")


def logs(session: Session, line: str) -> None:
    """Print, or save, the output of a run, or the logs of machines."""
    asked = parse_verb("logs", line)
    options, name = asked.logs, asked.pool.name
    if options.node:
        _node_logs(session, options, name)
        return
    kept = find(options.run, session.pools.ids(name))
    ranks = parse_ranks("rank", options.rank, _ANY_WORLD) if options.rank else None
    if options.save:
        print(save_log(kept, ranks, Path(options.save)))
        return
    if not options.run:
        print(spell_run(kept, time.time()))
    if options.follow:
        with contextlib.suppress(KeyboardInterrupt):  # the way to stop it
            follow_log(kept, ranks, options.lines, functools.partial(_pause, session))
        return
    print_log(kept, ranks, options.lines)


def show(session: Session, line: str) -> None:
    """Draw a run once more, in full: one that goes on in the background as it is now."""
    asked = parse_verb("show", line)
    run, name = asked.logs.run, asked.pool.name
    own = session.pools.ids(name)
    view = _view_here(session, run, own)
    draw_once(session.shell, find_picture(run, own) if view is None else alone(as_of_now(view)))


def _view_here(session: Session, run: str, own: list[str]) -> RunView | None:
    """A run of a pool that is up here; the newest where none is named."""
    pool_id, slash, number = run.rpartition("/")
    if number and not number.isdecimal():
        raise OptionError("run", f"run={run}: {RUN_FORM}")
    among = [session.pools.with_id(each) for each in ([pool_id] if slash else own)]
    found = [session.pools.displays(pool).view_of(int(number or 0)) for pool in among if pool]
    views = [view for view in found if view is not None]
    return max(views, key=lambda view: view.wall + view.began, default=None)


def _pause(session: Session) -> None:
    """Let a moment pass, and have on disk what runs in the background printed in it."""
    time.sleep(_PAUSE)
    for work in list(session.pools.background.values()):
        work.look()
    session.pools.ids()


def _node_logs(session: Session, options: LogOptions, name: str | None) -> None:
    own = session.pools.ids(name)
    if not own and name is None:
        raise OptionError(
            "node", "node=: this notebook has had no pool; pool= names one of another"
        )
    pool_id = own[-1] if own else node_logs.which_pool(name)
    pool = session.pools.with_id(pool_id)
    fetch = functools.partial(node_logs.logs_elsewhere, pool_id)
    if pool is not None:
        fetch = functools.partial(agent_logs, pool.context.generations.machines)
    found = node_logs.node_logs(pool_id, options.node, fetch)
    if options.save:
        print(node_logs.save_nodes(found, Path(options.save)))
        return
    if found.words and name != pool_id:
        print(found.heading(time.time()))
    node_logs.print_nodes(found, options.lines)


def check(session: Session, line: str) -> None:
    """Print what a pool's ranks are and how they reach one another, or the positions of ranks in a run."""
    what, _, rest = line.strip().partition(" ")
    if what not in CHECKS:
        name = parse_verb("check", line).pool.name
        near = near_words(what, CHECKS) if name == what else ""
        if name and near and session.pools.live(name) is None:
            raise OptionError(what, f"%sky check {what}: there is no pool of this name{near}")
        _survey(session, line)
        return
    own = [session.pools[name] for name in session.pools]
    found = subjects(own, parse_verb("check", rest).pool.name)
    for said in standing_lines(standing(session.shell, each) for each in found):
        print(said)


def _survey(session: Session, line: str) -> None:
    pool = live_pool(session, session.finder.name_of(parse_verb("check", line)))
    for said in survey_lines(survey(pool.spec, functools.partial(session.ask, pool))):
        print(said)
