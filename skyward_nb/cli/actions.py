"""The actions of the commands: each calls `reports`, and prints the answer as lines or as JSON."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from skyward_nb.cli.phrases import at_terminal
from skyward_nb.options.option_line import LogOptions, ParsedOptions
from skyward_nb.pool.registry import ended_of
from skyward_nb.reports.found_pools import (
    FoundPool,
    choose,
    forget,
    forgotten,
    others,
    silent,
    unanswered,
)
from skyward_nb.words.errors import OptionError, PoolError, spell_size
from skyward_nb.words.offers import spell_dollars
from skyward_nb.words.ranks import parse_ranks

if TYPE_CHECKING:
    from skyward_nb.logs.log_files import StoredRun
    from skyward_nb.reports.scripts import Script

_ANY_WORLD = 1 << 16
_PAUSE = 0.1


def status(asked: ParsedOptions, _rest: list[str], as_json: bool) -> int:
    """Print the pools that are up."""
    from skyward_nb.reports.status import row_lines, row_of

    name = _named(asked)
    every = others(())
    there = [left for left in every if name in (None, left.entry.spec.name, left.entry.pool_id)]
    mute = [each for each in silent(every) if name in (None, each.spec.name, each.pool_id)]
    if name is not None and not there:
        raise PoolError(
            name, f"pool {name!r} does not answer" if mute else f"no pool {name!r} is up"
        )
    are_silent = name is None and _say_unanswered(every)
    rows = tuple(map(row_of, there))
    if as_json:
        from skyward_nb.cli.documents import SilentPool, Status, show

        show(Status(rows, tuple(map(SilentPool.of, mute))))
        return 0
    for left, row in zip(there, rows, strict=True):
        first, *rest = row_lines(row)
        print(
            first if left.handle(there) == row.name else f"{first} · pool={row.id}", *rest, sep="\n"
        )
    if not (rows or are_silent):
        print("no pool is up")
    return 0


def logs(asked: ParsedOptions, _rest: list[str], as_json: bool) -> int:
    """Print the output of a run, save it, or list the runs."""
    from skyward_nb.reports.run_logs import (
        find_run,
        follow_log,
        log_json,
        print_log,
        runs_of,
        save_log,
        spell_run,
    )

    options, pool = asked.logs, asked.pool.name
    word = next(iter(asked.rest), "")
    if options.follow and as_json:
        raise OptionError(
            "follow", "follow prints lines as they come, and --json one document: use one"
        )
    if options.save and as_json:
        raise OptionError("save", "save= writes lines of text, and --json prints: use one of them")
    if options.node:
        return _nodes(replace(options, run=word or options.run), pool, as_json=as_json)
    if word == "runs":
        return _runs(runs_of(pool), as_json=as_json)
    if word and options.run:
        raise OptionError("run", f"{word} and run={options.run}: name one run")
    run = word or options.run
    ranks = parse_ranks("rank", options.rank, _ANY_WORLD) if options.rank else None
    kept = find_run(run, pool)
    if options.save:
        print(save_log(kept, ranks, Path(options.save)))
    elif as_json:
        sys.stdout.writelines(log_json(kept, ranks, options.lines))
        print()
    else:
        if not run:
            print(spell_run(kept, time.time()), file=sys.stderr)
        if options.follow:
            follow_log(kept, ranks, options.lines, lambda: time.sleep(_PAUSE), most=None)
        else:
            print_log(kept, ranks, options.lines, most=None)
    return 0


def _nodes(options: LogOptions, pool: str | None, *, as_json: bool) -> int:
    """Print the logs of machines, or save them."""
    from skyward_nb.reports import node_logs

    pool_id = node_logs.which_pool(pool)
    fetch = functools.partial(node_logs.logs_elsewhere, pool_id)
    found = node_logs.node_logs(pool_id, options.node, fetch)
    if options.save:
        print(node_logs.save_nodes(found, Path(options.save)))
    elif as_json:
        from skyward_nb.cli.documents import Nodes, show
        from skyward_nb.reports.run_logs import last_lines

        lines, left_out = last_lines(found.words, options.lines, None)
        show(Nodes(pool_id, dict(found.hosts), left_out, tuple(lines)))
    else:
        if found.words and pool != pool_id:
            print(found.heading(time.time()), file=sys.stderr)
        node_logs.print_nodes(found, options.lines, most=None)
    return 0


def _runs(there: list[StoredRun], *, as_json: bool) -> int:
    from skyward_nb.reports.run_logs import row_of, spell_run

    if as_json:
        from skyward_nb.cli.documents import Runs, show

        show(Runs(tuple(map(row_of, there))))
        return 0
    now = time.time()
    for kept in there:
        print(f"{spell_run(kept, now)}, {spell_size(kept.size)}")
    if not there:
        print("there is no output of any run")
    return 0


def down(asked: ParsedOptions, _rest: list[str], as_json: bool) -> int:
    """Take down pools without a client; pools with one are named, and stay."""
    from skyward_nb.cli.documents import Down, EndedPool, KeptPool, show
    from skyward_nb.cli.pool_client import take_down
    from skyward_nb.providers.folders import sweep as sweep_folders

    ended: list[EndedPool] = []
    kept: list[KeptPool] = []
    there = others(())
    names = [*asked.rest, *filter(None, [asked.pool.name])]
    is_all, is_of_all = names == ["all"], names in ([], ["all"])
    for pool in filter(None, [forget(name, there) for name in names]):
        entry = pool.entry
        name, ranks = entry.spec.name, entry.spec.world_size
        ended.append(EndedPool(name, entry.pool_id, ranks, may_run=pool.may_run))
        names = [each for each in names if each not in (name, entry.pool_id)]
        print(forgotten(pool), file=sys.stderr if as_json else sys.stdout)
    for left in [] if ended and not names else _meant(names, there):
        spec, pool_id = left.entry.spec, left.entry.pool_id
        try:
            if not left.is_free:
                raise PoolError(spec.name, f"pool {spec.name!r} is {left.where()}: end it there")
            pool = take_down(left, "skyward-nb down", for_good=asked.cell.now)
        except PoolError as error:
            kept.append(KeptPool(spec.name, pool_id, error.message))
            print(f"skyward-nb: {error.message}", file=sys.stderr)
            continue
        bill = left.entry.bill
        spent = bill.spent(time.time()) if bill is not None else None
        ended.append(
            EndedPool(
                spec.name, pool_id, spec.world_size, spent, pool.closing.may_run, pool.closing.kept
            )
        )
        if not as_json:
            costs = f"; it has cost {spell_dollars(spent)}" if spent is not None else ""
            print(at_terminal(f"pool {spec.name} is down: {pool.closing.spell_end()}{costs}"))
    are_silent = is_of_all and _say_unanswered(there)
    # A client that was killed as it started a pool has left its folder, which no pool of the list has.
    swept = sweep_folders()
    if as_json:
        show(Down(tuple(ended), tuple(kept), swept.folders))
    elif not ended and not kept:
        from skyward_nb.reports.cleanup import stopped_words

        none = "" if are_silent else "no pool is up"
        print("\n".join(filter(None, [none, stopped_words("skyward-nb sweep")])))
    if swept and not as_json:
        print(f"removed: {swept}")
    return 1 if kept or (is_all and are_silent) or any(each.may_run for each in ended) else 0


def _say_unanswered(there: Collection[FoundPool]) -> bool:
    """Tell of pools elsewhere that do not answer; whether one of them may be up."""
    for each in unanswered(there):
        print(at_terminal(each), file=sys.stderr)
    return not all(map(ended_of, silent(there)))


def _meant(names: list[str], there: list[FoundPool]) -> list[FoundPool]:
    """The pools to take down: the named ones, all, or the only one without a client."""
    if names == ["all"]:
        return there
    if not names:
        return [choose(None, "", there)] if there else []
    chosen = [choose(name, "", there) for name in names]
    return list({left.entry.pool_id: left for left in chosen}.values())


def sweep(asked: ParsedOptions, _rest: list[str], as_json: bool) -> int:
    """Remove what dead pools have left; 1 where something of it may cost on."""
    from skyward_nb.reports.cleanup import clean_up

    swept = clean_up(ends_stopped=asked.cell.now)
    if as_json:
        from skyward_nb.cli.documents import Sweep, show

        show(Sweep.of(swept))
    else:
        print(at_terminal(str(swept)))
    _say_unanswered(others(()))
    return int(any(each.left for each in swept.reports.values()))


def bake(asked: ParsedOptions, _rest: list[str], as_json: bool) -> int:
    """Make an image of the head machine of a pool without a client, remove an image, or list all."""
    from skyward_nb.cli.documents import Baked, show
    from skyward_nb.cli.pool_client import take_down
    from skyward_nb.reports import baked_images

    image = baked_images.image_name(asked.rest)
    if image is not None and asked.cell.remove:
        said = baked_images.remove(image, asked.pool.region or ())
        print(at_terminal(said), file=sys.stderr if as_json else sys.stdout)
    elif image is not None:
        left = choose(asked.pool.name, "", others(()))
        spec, pool_id = left.entry.spec, left.entry.pool_id
        if not left.is_free:
            raise PoolError(spec.name, f"pool {spec.name!r} is {left.where()}: bake it there")
        baked_images.check(spec, pool_id, image)
        region = baked_images.region_of(pool_id)
        pool = take_down(left, "skyward-nb bake", image=image)
        ended = f"pool {spec.name} is down: {pool.closing.spell_end()}"
        print(at_terminal(ended), file=sys.stderr if as_json else sys.stdout, flush=True)
        baked_images.wait(spec.name, image, region)
    report = baked_images.look()
    if as_json:
        show(Baked(tuple(report.there), tuple(report.removed), tuple(report.left)))
    else:
        print(at_terminal("\n".join(baked_images.lines(report))))
    return 0


def check(asked: ParsedOptions, _rest: list[str], as_json: bool) -> int:
    """Print what a pool's ranks are and how they reach one another, or where ranks of runs are."""
    from skyward_nb.cli.documents import Check, show

    if asked.rest:
        return _hang(asked, as_json=as_json)
    from skyward_nb.cli.pool_client import open_pool
    from skyward_nb.options.defaults import defaults
    from skyward_nb.reports.pool_check import survey, survey_lines
    from skyward_nb.show.display import RunDisplay
    from skyward_nb.show.log import LogCanvas

    known = defaults(Path.cwd(), os.environ, {})
    display = RunDisplay(LogCanvas(), "")
    with open_pool(asked.pool, known, display, "skyward-nb check") as there:
        found = survey(there.pool.spec, there.ask)
        if as_json:
            *_, last = found
            show(Check(there.pool.spec.name, last))
        else:
            for said in survey_lines(found):
                print(at_terminal(said), flush=True)
    return 0


def _hang(asked: ParsedOptions, *, as_json: bool) -> int:
    from skyward_nb.cli.documents import Hang, show
    from skyward_nb.reports.hang_check import standing, standing_lines, subjects

    if shaping := next((option for option in asked.pool.stated if option != "pool"), ""):
        raise OptionError(shaping, f"{shaping}= is not an option here, only pool= is")
    found = [standing(None, each) for each in subjects((), asked.pool.name)]
    if as_json:
        show(Hang(tuple(found)))
    else:
        for said in standing_lines(found):
            print(at_terminal(said))
    return 0


def run(asked: ParsedOptions, rest: list[str], as_json: bool) -> int:
    """Run a script on every rank; returns the script's exit code."""
    from skyward_nb.reports.task_script import script_of

    script = script_of(rest, "skyward-nb run [option ...] SCRIPT [ARG ...]")
    return _run(script, asked, f"skyward-nb run {script.name}", as_json=as_json)


def torchrun(_asked: ParsedOptions, rest: list[str], as_json: bool) -> int:
    """Run a script under PyTorch's elastic agents; returns 0, or 1 where workers failed."""
    from skyward_nb.cli.command_table import read
    from skyward_nb.reports.torchrun import Torchrun

    script = Torchrun.of_line(rest, "skyward-nb torchrun")
    asked = script.options(read("torchrun", list(script.line.pool_words)))
    return _run(script, asked, f"skyward-nb {script.name}", as_json=as_json)


def _run(script: Script, asked: ParsedOptions, program: str, *, as_json: bool) -> int:
    from skyward_nb.cli.pool_client import open_pool
    from skyward_nb.cli.script import ScriptEnd, run_script
    from skyward_nb.options.defaults import defaults, with_defaults
    from skyward_nb.reports.resource_choices import first_to_be_had
    from skyward_nb.show.display import RunDisplay
    from skyward_nb.show.log import LogCanvas

    try:
        script.check()
    except SyntaxError as error:
        sys.stderr.writelines(traceback.format_exception_only(error))
        return 1
    known = defaults(Path.cwd(), os.environ, {})
    options = with_defaults(asked, known).cell

    def run_on_pool(script: Script) -> ScriptEnd:
        display = RunDisplay(LogCanvas(), "", quiet=options.quiet, logs="skyward-nb logs {run}")
        with open_pool(
            asked.pool,
            known,
            display,
            program,
            script.frameworks,
            script.for_new_pool,
            script.modules,
        ) as there:
            return run_script(there, script, options, display)

    # With --json, stdout has the document alone: the output of ranks goes to stderr.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        end = first_to_be_had(script.name, script.choices(), run_on_pool)
    if end.traceback:
        print(*end.traceback, sep="\n", file=sys.stderr)
    if as_json:
        from skyward_nb.cli.documents import show

        show(end)
    return end.exit_code


def rehearse(asked: ParsedOptions, words: list[str], as_json: bool) -> int:
    """Play the acts of a rehearsal; 1 where one did not show what it must, or something is left."""
    from skyward_nb.cli import rehearsal

    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        found = rehearsal.rehearse(asked, words, lambda line: print(line, flush=True))
    if as_json:
        from skyward_nb.cli.documents import show

        show(found)
    return 0 if found.holds else 1


def _named(asked: ParsedOptions) -> str | None:
    """The name of a pool, given as a word or by `pool=`."""
    names = [*asked.rest, *filter(None, [asked.pool.name])]
    if len(names) > 1:
        raise OptionError("pool", f"{' and '.join(names)}: name one pool")
    return names[0] if names else None


DO: dict[str, Callable[[ParsedOptions, list[str], bool], int]] = {
    "status": status,
    "logs": logs,
    "down": down,
    "sweep": sweep,
    "bake": bake,
    "check": check,
    "run": run,
    "torchrun": torchrun,
    "rehearse": rehearse,
}
"""The actions by the names of commands; each returns the exit code."""
