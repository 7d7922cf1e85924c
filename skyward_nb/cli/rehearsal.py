"""`skyward-nb rehearse aws`: the smallest pools that show whether an account's machines do what is promised, one after another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skyward_nb.cli.documents import Rehearsal
from skyward_nb.cli.phrases import at_terminal
from skyward_nb.cli.pool_client import open_pool
from skyward_nb.cli.rehearsal_acts import (
    Act,
    ActEnd,
    PlannedAct,
    Shown,
    check_budget,
    chosen,
    last_line,
    plan_lines,
)
from skyward_nb.options.defaults import Default, defaults, for_new_pool
from skyward_nb.options.option_line import ParsedOptions, parse_words, words_without
from skyward_nb.options.specs import spec_of
from skyward_nb.reports.cleanup import clean_up
from skyward_nb.reports.cost_approval import ask_person, quote_for
from skyward_nb.reports.found_pools import others
from skyward_nb.reports.pool_check import survey
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.log import LogCanvas
from skyward_nb.words.errors import NotAgreed, OptionError, SkyError, StartError
from skyward_nb.words.findings import Findings
from skyward_nb.words.offers import spell_dollars
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec

BUDGET = 5.0
"""Dollars that a rehearsal may cost where max_cost= does not say."""
_IS_UP = "the rehearsal's rank is up"
_WAITS = f"import time\nprint({_IS_UP!r}, flush=True)\ntime.sleep(3600)\n"
_PAUSE = 5.0
_UNAIDED = 420.0
"""Seconds in which the machine of a client that was killed must have ended: its idle time, its shutdown, EC2's word of it."""
_SOON = 120.0
"""Seconds in which a client that is interrupted has taken its pool down."""
_PROGRAM = "skyward-nb rehearse"


def rehearse(asked: ParsedOptions, words: Sequence[str], say: Callable[[str], None]) -> Rehearsal:
    """Play the acts that are asked for in these `words`; raises `OptionError`, `NotAgreed`, or what AWS answers, before anything is rented.

    An act that fails does not end the others; an interrupt does, once its machines are ended.
    """
    cloud, *names = asked.rest or ("",)
    if cloud != "aws":
        raise OptionError("aws", "a rehearsal is for machines of AWS: skyward-nb rehearse aws")
    given = asked.pool
    budget = BUDGET if given.max_cost is msgspec.UNSET else given.max_cost
    known = defaults(Path.cwd(), os.environ, {})
    plan = [_planned(act, given, known) for act in chosen(names)]
    for line in plan_lines(plan):
        say(line)
    check_budget(plan, budget)
    if given.yes is not True:
        _agree(plan)
    ends: list[ActEnd] = []
    try:
        for each in plan:
            say(f"\n{each.act.name}: {each.act.title}")
            ends.append(_played(each, given, known, words, say))
    finally:
        swept = clean_up()
        left = tuple(swept.rented.left) if swept.rented else ()
        say(f"\n{swept}\n{last_line(ends, len(plan))}")
    return Rehearsal(tuple(ends), left)


def _agree(plan: Sequence[PlannedAct]) -> None:
    most = sum(each.most for each in plan)
    answer = ask_person([], f"Rent that, for at most {spell_dollars(most)}? [y/N] ")
    if answer is None:
        raise NotAgreed(most, "nobody can answer here: `yes` agrees to what this may cost")
    if answer.strip().lower() not in ("y", "yes"):
        raise NotAgreed(most, "you did not agree: nothing was rented")


def _words_of(act: Act) -> list[str]:
    return ["provider=aws", *act.options, f"ttl={act.minutes}m", f"pool=rehearse-{act.name}", "yes"]


def _options_of(act: Act, given: PoolOptions) -> PoolOptions:
    """Those of the act's pool: its own, and where and how the person rents."""
    own = parse_words(_words_of(act), scopes=("pool",), words=0).pool
    theirs = {
        name: getattr(given, name) for name in given.stated if name not in ("max_cost", "yes")
    }
    return own.changed(**theirs)


def _planned(act: Act, given: PoolOptions, known: list[Default]) -> PlannedAct:
    options = for_new_pool(ParsedOptions(pool=_options_of(act, given)), known)
    spec = spec_of(PoolSpec(), options)
    quote = quote_for(spec)
    if quote is None or quote.most is None:
        raise StartError(
            spec.name,
            f"{act.name}: the price of {spec.aws and spec.aws.instance_type} is not known",
        )
    return PlannedAct(act, quote.most)


def _played(
    planned: PlannedAct,
    given: PoolOptions,
    known: list[Default],
    words: Sequence[str],
    say: Callable[[str], None],
) -> ActEnd:
    """Play an act, and say what it shows as soon as it does."""
    act, began = planned.act, time.monotonic()
    shown: list[Shown] = []
    trouble = ""
    try:
        if act.is_killed:
            found = _of_a_killed_client(act, words)
        else:
            found = act.judge(_checked(_options_of(act, given), known))
        for each in found:
            shown.append(each)
            say(f"  {at_terminal(str(each))}")
    except SkyError as error:
        trouble = error.message
        say(f"  ✗ {at_terminal(trouble)}")
    seconds = time.monotonic() - began
    return ActEnd(
        name=act.name,
        shown=tuple(shown),
        dollars=planned.spent(seconds),
        seconds=seconds,
        trouble=trouble,
    )


def _checked(options: PoolOptions, known: list[Default]) -> Findings:
    """What a check finds on a pool of these options, which is down then."""
    display = RunDisplay(LogCanvas(), "")
    with open_pool(options, known, display, _PROGRAM) as there:
        *_, found = survey(there.pool.spec, there.ask)
    return found


# ── a client that is killed ─────────────────────────────────────────────────────────────


def _of_a_killed_client(act: Act, words: Sequence[str]) -> Sequence[Shown]:
    """What becomes of the machine when the process that rented it is killed, as nobody looks after it."""
    with tempfile.TemporaryDirectory(prefix="skyward-rehearsal-") as folder:
        script = Path(folder, "waits.py")
        script.write_text(_WAITS)
        theirs = words_without(words, ("max_cost", "yes"))
        command = [sys.executable, "-m", "skyward_nb", "run", *_words_of(act), *theirs, str(script)]
        client = subprocess.Popen(  # noqa: S603 - this very program
            command, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        try:
            assert client.stdout is not None
            if not any(_IS_UP in line for line in client.stdout):
                raise StartError(act.name, "its pool did not come up: see above")
            client.kill()
        finally:
            _ended(client)
    seconds = _seconds_until_gone(f"rehearse-{act.name}")
    swept = clean_up().rented
    helped = ", ".join(swept.machines) if swept else ""
    left = ", ".join(swept.left) if swept else ""
    when = f"after {seconds:.0f} s" if seconds is not None else f"not within {_UNAIDED:.0f} s"
    return (
        Shown(
            "a spot machine ran, and its client was killed (SIGKILL)",
            client.returncode == -signal.SIGKILL,
        ),
        Shown(
            "its machine ended by itself",
            seconds is not None and not helped,
            f"a sweep had to end {helped}" if helped else when,
        ),
        Shown("EC2 has nothing of it any more", not left, left),
    )


def _ended(client: subprocess.Popen[str]) -> None:
    """See to it that the client has ended: an interrupt reaches it, too, and it takes its pool down."""
    with client:
        try:
            client.wait(_SOON)
        except subprocess.TimeoutExpired:
            client.kill()


def _seconds_until_gone(name: str) -> float | None:
    """How long a pool and its machines go on although nobody asks them to end; None: too long."""
    from skyward_nb.providers.aws.sweep import machines_alive
    from skyward_nb.providers.loop_thread import LOOP

    def goes_on() -> bool:
        is_listed = any(each.entry.spec.name == name for each in others(()))
        return is_listed or bool(LOOP.start(machines_alive(name)).future.result())

    began = time.monotonic()
    while goes_on():
        if time.monotonic() - began > _UNAIDED:
            return None
        time.sleep(_PAUSE)
    return time.monotonic() - began
