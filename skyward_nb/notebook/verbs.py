"""The verbs of `%sky`: their table, and those that start and end pools or set defaults."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

from skyward_nb.notebook.debugger import debug
from skyward_nb.notebook.name_verbs import list_vars, pull, push
from skyward_nb.notebook.named_pools import (
    adopted,
    bring_up,
    earlier_kernels_pools,
    forgot,
    is_gone,
    is_here,
    live_pool,
    warnings_printed,
)
from skyward_nb.notebook.pool_finder import ResolvedPool
from skyward_nb.notebook.report_verbs import check, cost, logs, on_words, show, status
from skyward_nb.notebook.script_verbs import fetch, script
from skyward_nb.notebook.session import Session
from skyward_nb.options.option_help import help_text, unknown_verb
from skyward_nb.options.option_line import (
    of_script,
    parse,
    parse_script,
    parse_settings,
    parse_verb,
    split_line,
    split_off,
)
from skyward_nb.options.option_table import TAKES, UP_TAKES, unknown_option
from skyward_nb.options.synonyms import VERB_ALIASES, asks_for_help
from skyward_nb.picture.wording import clock
from skyward_nb.pool.installing import added_words
from skyward_nb.reports import baked_images
from skyward_nb.reports.cleanup import clean_up, stopped_words
from skyward_nb.reports.cost_approval import dry_lines
from skyward_nb.reports.found_pools import announcement, notebook_of, unanswered
from skyward_nb.reports.run_notes import gone_with
from skyward_nb.reports.task_script import script_of
from skyward_nb.reports.torchrun import Torchrun
from skyward_nb.words.errors import OptionError, PoolError, SkyError
from skyward_nb.words.masking import masked_setting


def do(session: Session, line: str) -> object:
    """Run a line of `%sky`; raises `OptionError` for a wrong verb or option.

    Returns the value that the notebook shows, which only `attach` has.
    """
    said, _, rest = line.strip().partition(" ")
    verb = VERB_ALIASES.get(said, said)
    if verb not in _DO:
        raise OptionError(verb, unknown_verb(verb))
    # Words after a script are its own.
    own = rest
    if verb in ("run", "torchrun"):
        own = " ".join(split_off(rest.split())[0] if verb == "run" else rest.split()[:1])
    if asks_for_help(own):
        verb, rest = "help", verb
    return _DO[verb](session, rest)


def up(session: Session, line: str) -> None:
    """Start a pool, or with `dry_run` print what it would cost."""
    asked = parse(line, scopes=("pool", "cell"))
    for option in asked.cell.stated:
        if option not in UP_TAKES:
            raise OptionError(option, unknown_option(option, ("pool",)))
    if asked.cell.dry_run:
        _print_plan(session.finder.resolve(asked))
        return
    bring_up(session, asked)


def _print_plan(meant: ResolvedPool) -> None:
    """Print what `up` would do."""
    if meant.pool is not None:
        print(f"pool {meant.spec.name} is up: {meant.spec}")
        if meant.spec.image != meant.pool.spec.image:
            print(f"would be installed: {added_words(meant.spec, meant.pool.spec)}")
    else:
        place = f", in the place of {meant.replaced.spec}" if meant.replaced else ""
        print(f"a pool would be started: {meant.spec}{place}")
    for said in [*meant.notes, *(() if meant.pool else dry_lines(meant.spec))]:
        print(said)


def down(session: Session, line: str) -> None:
    """Take pools down."""
    asked = parse_verb("down", line)
    if asked.rest or asked.pool.name is None:
        _end_all(session, also_earlier=bool(asked.rest), for_good=asked.cell.now)
    else:
        _end_named(session, asked.pool.name, for_good=asked.cell.now)


def _end_named(session: Session, name: str, *, for_good: bool) -> None:
    pools = session.pools
    if cut_off := pools.cut_off(name):
        _end(session, cut_off, for_good=for_good)
    elif forgot(session, name):
        """It is said already."""
    elif is_gone(session, name):
        _say_forgotten(pools.forget(name))
    else:
        _end(session, [adopted(session, name)], for_good=for_good)


def _end_all(session: Session, *, also_earlier: bool, for_good: bool) -> None:
    pools = session.pools
    names = [*(each for each in pools if pools.live(each)), *pools.cut_off()]
    lost = pools.forget()
    _say_forgotten(lost)
    _end(session, names, for_good=for_good)
    earlier = earlier_kernels_pools(session) if also_earlier else []
    for left in earlier:
        try:
            name = pools.adopt(left, session.display(quiet=True)).spec.name
            _end(session, [name], for_good=for_good)
        except PoolError as error:
            print(error.message)
    if not names and not lost and not earlier:
        others = announcement(notebook_of(session.shell.user_ns))
        print(f"no pool of this kernel is up\n{others}" if others else "no pool is up")
        if stopped := stopped_words("%sky sweep"):
            print(stopped)


def _say_forgotten(names: Iterable[str]) -> None:
    for name in names:
        print(f"pool {name} is gone, and is not started again")


def _end(
    session: Session, names: Iterable[str], *, for_good: bool = False, image: str = ""
) -> None:
    for name in names:
        paid = len(session.pools.paid)
        with warnings_printed():
            ended = session.pools.take_down(name, for_good=for_good, image=image)
            costs = "".join(f"; it has cost {bill.spent}" for bill in session.pools.paid[paid:])
            print(f"pool {name} is down: {ended}{costs}")


def restart(session: Session, line: str) -> None:
    """Begin a new generation."""
    name = session.finder.name_of(parse_verb("restart", line))
    if session.pools.live(name) is None and session.pools.lost(name) is not None:
        up(
            session, f"pool={name}"
        )  # a lost pool has no next generation: it is started again as it was
        return
    pool = live_pool(session, name)
    session.check_free(pool)
    lost = pool.ledger.names_made_on_ranks()
    began = time.monotonic()
    display = session.display(f"Restarting {pool.spec}")
    displays = session.pools.displays(pool)
    try:
        pool.restart(functools.partial(displays.give_aside, display))
    except (SkyError, KeyboardInterrupt) as error:
        display.error_follows = True
        display.fail(error, silent="Interrupted; no rank is ready")
        raise
    pool.clean()
    displays.renew()
    took = clock(time.monotonic() - began)
    notes = (gone_with("the old", lost),) if lost else ()
    words = f"Generation {pool.generation} of pool {pool.spec.name} is ready after {took}"
    display.end("finished", words, notes=notes)


def attach(session: Session, line: str) -> object:
    """Attach to a pool that another kernel has left."""
    asked = parse_verb("attach", line)
    if here := is_here(session, asked.pool.name):
        print(here)
        return None
    return session.attach(asked.pool.name, detach=asked.cell.detach)


def run(session: Session, line: str) -> object:
    """Run a script, or a module, on the ranks of a pool."""
    asked, rest = parse_script(line)
    return session.run_script(asked, script_of(rest, "%sky run [option ...] FILE [ARG ...]"))


def torchrun(session: Session, line: str) -> object:
    """Run a script under PyTorch's elastic agents, one on each node of a pool."""
    script = Torchrun.of_line(split_line(line), "%sky torchrun")
    return session.run_script(
        script.options(of_script(script.line.pool_words, TAKES["torchrun"])), script
    )


def bake(session: Session, line: str) -> None:
    """Make an image of a pool's head machine, and end the pool; remove an image, or list all."""
    asked = parse_verb("bake", line)
    image = baked_images.image_name(asked.rest)
    regions = asked.pool.region or ()
    if image is None:
        for said in baked_images.lines(baked_images.look()):
            print(said)
    elif asked.cell.remove:
        print(baked_images.remove(image, regions))
    else:
        _bake(session, session.finder.name_of(asked), image)


def _bake(session: Session, name: str, image: str) -> None:
    pool = live_pool(session, name)
    session.check_free(pool)
    baked_images.check(pool.spec, pool.pool_id, image)
    region = baked_images.region_of(pool.pool_id)
    _end(session, [name], image=image)
    if baked_images.is_begun(image, region):
        print("EC2 goes on alone: an interrupt ends nothing but this wait")
    print(baked_images.wait(name, image, region))


def sweep_up(session: Session, line: str) -> None:
    """Remove what dead pools have left, with processes and machines; print which pools do not answer."""
    asked = parse_verb("sweep", line)
    print(clean_up(ends_stopped=asked.cell.now))
    for said in unanswered(session.pools.others()):
        print(said)


def config(session: Session, line: str) -> None:
    """Set defaults of this session; print all defaults with their sources."""
    for option, text in parse_settings(line).items():
        if text == "":
            session.finder.settings.pop(option, None)
        else:
            session.finder.settings[option] = text
    known = session.finder.defaults(anew=True)
    if not known:
        print("no defaults are set; %sky config nodes=4 sets one for this session")
    strongest = {default.option: default for default in known}
    for default in strongest.values():
        print(
            f"{default.option}={masked_setting(default.option, default.text)}  ({default.source})"
        )


def on(session: Session, line: str) -> None:
    """Run every cell on ranks from the next one on; the options are defaults of its pools and runs."""
    settings = {name: text for name, text in parse_settings(line).items() if text}
    # What does not fit the pool that is up is said here, and not by each cell.
    session.finder.resolve(parse(line))
    session.pools.every_cell.turn_on(settings)
    session.finder.defaults(anew=True)
    print(on_words(session.pools.every_cell.mark))


def off(session: Session, line: str) -> None:
    """Run cells here again, from the next one on."""
    parse_verb("off", line)
    was_on = session.pools.every_cell.is_on
    session.pools.every_cell.turn_off()
    session.finder.defaults(anew=True)
    print(
        "cells run here again; pools stay up, and %%sky_remote runs a cell on them"
        if was_on
        else "cells run here already: %sky on runs every cell on ranks"
    )


def show_help(_session: Session, line: str) -> None:
    """Print the help."""
    print(help_text(line.strip() or None))


_DO: dict[str, Callable[[Session, str], object]] = {
    "up": up,
    "down": down,
    "status": status,
    "cost": cost,
    "vars": list_vars,
    "push": push,
    "pull": pull,
    "logs": logs,
    "run": run,
    "torchrun": torchrun,
    "script": script,
    "fetch": fetch,
    "show": show,
    "check": check,
    "debug": debug,
    "restart": restart,
    "attach": attach,
    "sweep": sweep_up,
    "bake": bake,
    "config": config,
    "on": on,
    "off": off,
    "help": show_help,
}
