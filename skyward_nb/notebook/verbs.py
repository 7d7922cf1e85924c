"""The verbs of `%sky`."""

from __future__ import annotations

import contextlib
import functools
import re
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from skyward_nb.logs.log_files import find
from skyward_nb.logs.node_log import agent_logs
from skyward_nb.notebook.session import Session
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_help import CHECKS, VERBS, help_text
from skyward_nb.options.option_table import TAKES, parse, parse_settings, unknown_option
from skyward_nb.picture.wording import clock, columns
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.message_parts import Variable
from skyward_nb.reports.cleanup import clean_up
from skyward_nb.reports.cost_approval import dry_lines
from skyward_nb.reports.found_pools import choose, forget, forgotten, notebook_of, unanswered
from skyward_nb.reports.hang_check import standing, standing_lines, subjects
from skyward_nb.reports.node_logs import (
    check_alone,
    logs_elsewhere,
    node_logs,
    print_nodes,
    save_nodes,
    which_pool,
)
from skyward_nb.reports.pool_check import survey, survey_lines
from skyward_nb.reports.run_logs import print_log, save_log, spell_run
from skyward_nb.reports.status import balance, cost_row, cost_words, own_row, row_lines, row_of
from skyward_nb.words.errors import OptionError, PoolError, SkyError, spell_size
from skyward_nb.words.masking import masked_text
from skyward_nb.words.ranks import count_ranks, parse_ranks, spell_ranks
from skyward_nb.words.units import near_words

_ANY_WORLD = 1 << 16


def do(session: Session, line: str) -> object:
    """Do what `%sky line` asks; raises `OptionError` for no verb or a wrong option.

    Returns what the notebook shows as the line's value, which only `attach` has.
    """
    verb, _, rest = line.strip().partition(" ")
    known: dict[str, Callable[[Session, str], object]] = {
        "up": up,
        "down": down,
        "status": status,
        "cost": cost,
        "vars": list_vars,
        "push": push,
        "pull": pull,
        "logs": logs,
        "check": check,
        "restart": restart,
        "attach": attach,
        "sweep": sweep_up,
        "config": config,
        "help": show_help,
    }
    if verb not in known:
        hint = near_words(verb, VERBS) or f": there is {', '.join(VERBS)}"
        what = f"%sky has no verb {verb!r}" if verb else "%sky needs a verb"
        raise OptionError(verb, what + hint)
    return known[verb](session, rest)


def up(session: Session, line: str) -> None:
    """Bring a pool up, or tell what that would cost."""
    asked = parse(line, scopes=("pool", "cell"))
    for option in asked.cell:
        if option != "dry_run":
            raise OptionError(option, unknown_option(option, ("pool",)))
    if asked.cell.get("dry_run"):
        pool, spec, notes = session.resolve(asked)
        is_up = pool is not None
        print(f"pool {spec.name} is up: {spec}" if is_up else f"a pool would be started: {spec}")
        for said in [*notes, *([] if is_up else dry_lines(spec))]:
            print(said)
        return
    display = session.display()
    try:
        pool, spec = session.find(asked, display)
        pool = pool or session.pools.start(spec, display)
    except SkyError as error:
        if display.drawn:
            display.end("failed", error.message.partition("\n")[0])
        raise
    except KeyboardInterrupt:
        display.end("interrupted", "Interrupted; nothing was started")
        raise
    display.end(
        "finished", f"Pool {pool.spec.name} is up: {pool.spec}", notes=pool.runs.told_once()
    )


def down(session: Session, line: str) -> None:
    """Take pools down."""
    asked = parse(line, scopes=("pool",), words=1)
    _only(asked.pool, "pool")
    if asked.rest and asked.rest != ("all",):
        raise OptionError(asked.rest[0], f"%sky down {asked.rest[0]}: write pool=NAME, or all")
    if asked.rest or not asked.pool:
        names = [name for name in session.pools if session.pools.live(name)]
        names += session.pools.cut_off()
        lost = session.pools.forget()
    elif cut_off := session.pools.cut_off(name := asked.pool["pool"]):
        names, lost = cut_off, []
    elif _forgot(session, name):
        return
    elif _is_gone(session, name):
        names, lost = [], session.pools.forget(name)
    else:
        names, lost = [_take_in(session, name)], []
    for name in lost:
        print(f"pool {name} is gone, and is not made anew")
    if not names and not lost:
        print("no pool is up")
    for name in names:
        paid = len(session.pools.paid)
        with _warnings_below():
            ended = session.pools.take_down(name)
            costs = "".join(f"; it has cost {each.spent}" for each in session.pools.paid[paid:])
            print(f"pool {name} is down: {ended}{costs}")


@contextlib.contextmanager
def _warnings_below() -> Generator[None]:
    """Print what machines warn of meanwhile as lines, below all others; also where it comes to an error."""
    said: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            yield
    finally:
        for each in said:
            if each.category is UserWarning:
                print(each.message)
            else:  # it has nothing to do with machines
                warnings.showwarning(each.message, each.category, each.filename, each.lineno)


def status(session: Session, line: str) -> None:
    """Print the pools there are."""
    asked = parse(line, scopes=("pool",))
    _only(asked.pool, "pool")
    only = asked.pool.get("pool")
    names = [name for name in session.pools if session.pools.live(name) and only in (None, name)]
    there = [left for left in session.pools.others() if only in (None, left.entry.spec.name)]
    lost = [each for each in session.pools.losses() if each.how and only in (None, each.spec.name)]
    if only and not there and not lost:
        _need(session, only)
    if not names and not there and not lost:
        print("no pool is up; a %%sky_remote cell or %sky up makes one")
    for each in lost:
        print(f"{each.how}. {each.advice}: {each.spec}")
    for name in names:
        pool = session.pools[name]
        gone = session.pools.look(pool)
        for said in row_lines(own_row(pool, gone, balance(session.pools.pictures(pool).last()))):
            print(said)
    for left in there:
        print(next(row_lines(row_of(left))))


def cost(session: Session, line: str) -> None:
    """Print what pools cost, and have cost that were taken down."""
    asked = parse(line, scopes=("pool",))
    _only(asked.pool, *TAKES["cost"])
    only = asked.pool.get("pool")
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
        words = f"{name}: {cost_words(cost_row(bill))}"
        print(" · ".join(filter(None, (words, bill.what, bill.source))))
    paid = [each for each in session.pools.paid if only in (None, each.name)]
    for each in paid:
        print(f"{each.name}: {each.how}, and has cost {each.spent} · {each.bill.what}")
    if not bills and not paid:
        known = {word for left in there for word in (left.entry.spec.name, left.entry.pool_id)}
        if only and not names and only not in known:
            _need(session, only)
        print("no pool that is up costs anything")


def push(session: Session, line: str) -> None:
    """Send names of the notebook to the ranks."""
    pool, names, options = _moving(session, "push", line)
    rows = session.move(pool, replace(options, push=names)).plan.rows
    for status in ("sent", "unchanged", "kept on ranks"):
        there = [f"{row.name} ({spell_size(row.size)})" for row in rows if row.status == status]
        if there:
            print(f"{status}: {', '.join(there)}")


def pull(session: Session, line: str) -> None:
    """Bring names of the ranks."""
    pool, names, options = _moving(session, "pull", line)
    if options.target and len(names) > 1:
        raise OptionError(
            "as", f"as={options.target} names one thing, and {len(names)} are asked for"
        )
    if options.gather == "none":
        raise OptionError("gather", "gather=none would bring nothing")
    ranks = session.move(pool, replace(options, pull=names)).ranks
    head = options.gather == "head"
    what = f"rank {ranks[0]}'s value" if head else f"one value per rank, of {count_ranks(ranks)}"
    print(f"{options.target or ', '.join(names)}: {what}")


def list_vars(session: Session, line: str) -> None:
    """Print the names on the ranks."""
    pool, _, options = _moving(session, "vars", line)
    done = session.move(pool, options, lists_names=True).done
    alike: dict[Variable, list[int]] = {}
    for rank, end in sorted(done.items()):
        for variable in end.variables:
            alike.setdefault(variable, []).append(rank)
    if not alike:
        print(f"no names on {count_ranks(done)}")
        return
    rows = [
        (
            each.name,
            spell_ranks(ranks),
            each.type_name,
            ("> " if each.at_least else "") + spell_size(each.size),
            _bound_by(each.cell),
        )
        for each, ranks in sorted(alike.items(), key=lambda pair: (pair[0].name, pair[1]))
    ]
    for line in columns([("name", "ranks", "type", "size", "bound by"), *rows]):
        print(line)


def _bound_by(cell: int) -> str:
    if cell == 0:
        return "notebook"
    return f"In[{cell}] on the ranks" if cell > 0 else "the ranks"


def _moving(session: Session, verb: str, line: str) -> tuple[Pool, tuple[str, ...], CellOptions]:
    """(pool, names, options) of a verb that moves names."""
    words = 0 if verb == "vars" else 1
    # Names may stand apart: a,b or a, b or a b.
    line = re.sub(r"(?<=\w)\s*,\s*(?=\w)", ",", line)
    asked = parse(line, scopes=("pool", "cell", "verb"), words=words)
    _only({**asked.pool, **asked.cell}, *TAKES[verb])
    names = tuple(asked.rest[0].split(",")) if asked.rest else ()
    if words and not names:
        raise OptionError(verb, f"%sky {verb} needs names: %sky {verb} x_train,model")
    return _need(session, session.name_of(asked)), names, CellOptions.of({"push": (), **asked.cell})


def logs(session: Session, line: str) -> None:
    """Print what ranks printed in a run, or was said of machines, or save it."""
    asked = parse(line, scopes=("pool", "verb"))
    options = asked.cell
    _only({**asked.pool, **options}, *TAKES["logs"])
    if "node" in options:
        _node_logs(session, options, asked.pool.get("pool"))
        return
    kept = find(options.get("run", ""), session.pools.ids(asked.pool.get("pool")))
    ranks = parse_ranks("rank", options["rank"], _ANY_WORLD) if "rank" in options else None
    if "save" in options:
        print(save_log(kept, ranks, Path(options["save"])))
    else:
        if "run" not in options:
            print(spell_run(kept, time.time()))
        print_log(kept, ranks, options.get("lines"))


def _node_logs(session: Session, options: Mapping[str, Any], name: str | None) -> None:
    check_alone(options)
    own = session.pools.ids(name)
    if not own and name is None:
        raise OptionError(
            "node", "node=: this notebook has had no pool; pool= names one of another"
        )
    pool_id = own[-1] if own else which_pool(name)
    pool = session.pools.with_id(pool_id)
    fetch = functools.partial(logs_elsewhere, pool_id)
    if pool is not None:
        fetch = functools.partial(agent_logs, pool.context.generations.machines)
    found = node_logs(pool_id, options["node"], fetch)
    if "save" in options:
        print(save_nodes(found, Path(options["save"])))
    else:
        if found.words and name != pool_id:
            print(found.heading(time.time()))
        print_nodes(found, options.get("lines"))


def check(session: Session, line: str) -> None:
    """Tell what a pool's ranks are and how they reach one another, or where those of a run are."""
    what, _, rest = line.strip().partition(" ")
    if not what or "=" in what or what.startswith("--"):
        _survey(session, line)
        return
    if what not in CHECKS:
        known = ", ".join(CHECKS)
        said = f"%sky check {what}: there is {known}, or nothing"
        raise OptionError(what, said + near_words(what, CHECKS))
    asked = parse(rest, scopes=("pool",))
    _only(asked.pool, *TAKES["check"])
    own = [session.pools[name] for name in session.pools]
    found = subjects(own, asked.pool.get("pool"))
    for said in standing_lines(standing(session.shell, each) for each in found):
        print(said)


def _survey(session: Session, line: str) -> None:
    asked = parse(line, scopes=("pool",))
    _only(asked.pool, *TAKES["check"])
    pool = _need(session, session.name_of(asked))
    for said in survey_lines(survey(pool.spec, functools.partial(session.ask, pool))):
        print(said)


def restart(session: Session, line: str) -> None:
    """Begin a new generation."""
    asked = parse(line, scopes=("pool",))
    _only(asked.pool, "pool")
    name = session.name_of(asked)
    if session.pools.live(name) is None and session.pools.lost(name) is not None:
        up(session, line)  # what is gone has no generation to come; it comes again as it was
        return
    pool = _need(session, name)
    session.check_free(pool)
    lost = pool.ledger.names_made_on_ranks()
    began = time.monotonic()
    display = session.display(f"Restarting {pool.spec}")
    pictures = session.pools.pictures(pool)
    try:
        pool.restart(functools.partial(pictures.beside, display))
    except (SkyError, KeyboardInterrupt) as error:
        display.end("failed", str(error).partition("\n")[0] or "Interrupted; no rank is ready")
        raise
    pool.clean()
    pictures.renew()
    took = clock(time.monotonic() - began)
    notes = (f"gone with the old ranks: {', '.join(lost)}",) if lost else ()
    words = f"Generation {pool.generation} of pool {pool.spec.name} is ready after {took}"
    display.end("finished", words, notes=notes)


def attach(session: Session, line: str) -> object:
    """Go on with a pool that another kernel has left alive."""
    asked = parse(line, scopes=("pool", "cell"))
    _only({**asked.pool, **asked.cell}, *TAKES["attach"])
    return session.attach(asked.pool.get("pool"), detach=asked.cell.get("detach", False))


def sweep_up(session: Session, line: str) -> None:
    """Remove what pools that are gone have left, and end their processes and machines; tell which do not answer."""
    _only({**parse(line, scopes=("pool",)).pool})
    print(clean_up())
    for said in unanswered(session.pools.others()):
        print(said)


def config(session: Session, line: str) -> None:
    """Set defaults of this session, or show all defaults and where they stand."""
    for option, text in parse_settings(line).items():
        if text == "":
            session.settings.pop(option, None)
        else:
            session.settings[option] = text
    known = session.defaults(anew=True)
    if not known:
        print("no defaults are set; %sky config nodes=4 sets one for this session")
    strongest = {default.option: default for default in known}
    for default in strongest.values():
        text = masked_text(default.text) if default.option == "env" else default.text
        print(f"{default.option}={text}  ({default.source})")


def show_help(_session: Session, line: str) -> None:
    """Print the help."""
    print(help_text(line.strip() or None))


def _need(session: Session, name: str) -> Pool:
    pool = session.pools.live(name)
    if pool is None:
        if (lost := session.pools.lost(name)) is not None and lost.how:
            raise PoolError(name, f"{lost.how}. {lost.advice}.")
        there = ", ".join(session.pools)
        hint = f"pools that are up: {there}" if there else "%sky up or a first cell makes one"
        raise PoolError(name, f"there is no pool {name!r}; {hint}")
    return pool


def _forgot(session: Session, name: str) -> bool:
    """Whether the pool of this name or id was forgotten now, as it does not answer, and that told."""
    if session.pools.live(name) is not None or session.pools.with_id(name) is not None:
        return False
    there = session.pools.others()
    with _warnings_below():
        if (pool := forget(name, there)) is not None:
            print(forgotten(pool))
    return pool is not None


def _is_gone(session: Session, name: str) -> bool:
    """Whether the pool of this name was lost, and this notebook has none of that name alive elsewhere."""
    if session.pools.live(name) is not None or session.pools.lost(name) is None:
        return False
    ours = ("", notebook_of(session.shell.user_ns))
    alive = [left.entry for left in session.pools.others() if left.entry.notebook in ours]
    return all(entry.spec.name != name for entry in alive)


def _take_in(session: Session, name: str) -> str:
    """Have the pool of this name or id here, be it one that this notebook's earlier kernel has left.

    One of another notebook has to be meant: it goes by its id.
    """
    notebook = notebook_of(session.shell.user_ns)
    if session.pools.live(name) is None:
        there = session.pools.others()
        left = next((each for each in there if each.entry.pool_id == name), None)
        if left is None and any(each.entry.spec.name == name for each in there):
            left = choose(name, notebook, there)
            if left.entry.notebook not in ("", notebook):
                raise PoolError(
                    name,
                    f"the pool {name!r} that is alive is {left.whose()}, {left.doing()}: "
                    f"%sky down pool={left.entry.pool_id} ends it all the same",
                )
        if left is not None:
            name = session.pools.adopt(left, session.display(quiet=True)).spec.name
    return _need(session, name).spec.name


def _only(given: dict[str, object], *allowed: str) -> None:
    for option in given:
        if option not in allowed:
            wanted = ", ".join(f"{each}=" for each in allowed)
            only = f", only {wanted}" if wanted else ": this takes no options"
            raise OptionError(option, f"{option}= has no place here{only}")
