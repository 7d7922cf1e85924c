"""`skyward-nb rehearse aws`: the smallest pools that show whether an account's machines do what is promised, one after another."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from skyward_nb.cli.command_table import RENTING
from skyward_nb.cli.documents import Rehearsal
from skyward_nb.cli.phrases import at_terminal
from skyward_nb.cli.pool_client import PoolClient, open_pool, take_down
from skyward_nb.cli.rehearsal_acts import (
    Act,
    ActCheck,
    ActEnd,
    ActFindings,
    PlannedAct,
    check_budget,
    chosen,
    last_line,
    plan_lines,
)
from skyward_nb.options.defaults import defaults
from skyward_nb.options.option_line import ParsedOptions, parse_words, words_without
from skyward_nb.options.specs import spec_of
from skyward_nb.reports.cleanup import clean_up
from skyward_nb.reports.cost_approval import ask_person, quote_for, says_yes
from skyward_nb.reports.found_pools import others
from skyward_nb.reports.pool_check import survey
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.log import LogCanvas
from skyward_nb.words.errors import NotAgreed, OptionError, SkyError, StartError
from skyward_nb.words.offers import spell_dollars
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec

BUDGET = 5.0
"""Dollars that a rehearsal may cost where max_cost= does not say."""
_PAUSE = 5.0
_IDLE_END_LIMIT = 420.0
"""Seconds in which the machine of a killed client must have ended: its idle time, its shutdown, EC2's word of it."""
_TAKE_DOWN_LIMIT = 120.0
"""Seconds in which a client that is interrupted has taken its pool down."""
_PROGRAM = "skyward-nb rehearse"
_CLIENT = "import sys; from skyward_nb.cli.rehearsal import hold; hold(sys.argv[1:])"
_UP = "the rehearsal's pool is up"
Say = Callable[[str], None]


@dataclass
class Stage:
    """One rehearsal: the `place` where pools are rented, as words of an option line, and what came of acts so far."""

    place: list[str]
    budget: float
    say: Say
    mark: str = field(default_factory=lambda: secrets.token_hex(2))
    """In the names of its pools, so that none is another rehearsal's."""
    ends: list[ActEnd] = field(default_factory=list[ActEnd])
    left: list[str] = field(default_factory=list[str])

    def name_of(self, act: Act) -> str:
        """The name of an act's pool."""
        return f"rehearse-{act.name}-{self.mark}"

    def words_of(self, act: Act) -> list[str]:
        """All options of an act's pool: no default but those of the place counts."""
        over = self.budget - sum(each.dollars for each in self.ends)
        own = ["provider=aws", *act.options, f"ttl={act.minutes}m", f"pool={self.name_of(act)}"]
        return [*own, f"max_cost={max(over, 0.01):.2f}", "yes", *self.place]

    def options_of(self, act: Act) -> PoolOptions:
        """The same, read."""
        return _read(self.words_of(act))


def _read(words: Sequence[str]) -> PoolOptions:
    return parse_words(words, scopes=("pool",), words=0).pool


def rehearse(asked: ParsedOptions, words: Sequence[str], say: Say) -> Rehearsal:
    """Play the acts that are asked for in these `words`.

    Raises `OptionError`, `NotAgreed`, or what AWS answers, before anything is rented. An act that fails does not end
    the others; an interrupt does, once its machines are ended.
    """
    cloud, *names = asked.rest or ("",)
    if cloud != "aws":
        raise OptionError("aws", "a rehearsal is for machines of AWS: skyward-nb rehearse aws")
    known = {each.option: each.text for each in defaults(Path.cwd(), os.environ, {})}
    # As if they stood on the line: those of where and how to rent, and of no other kind.
    ours = {option: known[option] for option in RENTING if option in known}
    stated = [f"{option}={text}" for option, text in ours.items() if option not in asked.stated]
    all_words = [*stated, *words]
    pool = _read(words_without(all_words, ()))
    stage = Stage(
        words_without(all_words, ("max_cost", "yes")),
        BUDGET if pool.max_cost is UNSET else pool.max_cost,
        say,
    )
    plan = [_planned(act, stage) for act in chosen(names)]
    for line in plan_lines(plan):
        say(line)
    check_budget(plan, stage.budget)
    if pool.yes is not True:
        _agree(plan)
    try:
        for each in plan:
            say(f"\n{each.act.name}: {each.act.title}")
            stage.ends.append(_played(each, stage))
    finally:
        say(f"\n{last_line(stage.ends, len(plan))}")
        swept = clean_up()
        stage.left += swept.rented.left if swept.rented else ()
        say(str(swept))
        if stage.left:
            say(
                f"these may still cost: {', '.join(stage.left)}: skyward-nb down all, then skyward-nb sweep"
            )
    return Rehearsal(tuple(stage.ends), tuple(stage.left))


def _agree(plan: Sequence[PlannedAct]) -> None:
    most = sum(each.most for each in plan)
    answer = ask_person([], f"Rent that, for at most {spell_dollars(most)}? [y/N] ")
    if answer is None:
        raise NotAgreed(most, "nobody can answer here: `yes` agrees to what this may cost")
    if not says_yes(answer):
        raise NotAgreed(most, "you did not agree: nothing was rented")


def _planned(act: Act, stage: Stage) -> PlannedAct:
    # What is too dear is told with all that it costs.
    spec = spec_of(PoolSpec(), replace(stage.options_of(act), max_cost=UNSET))
    quote = quote_for(spec)
    if quote is None or quote.most is None:
        kind = spec.aws.instance_type if spec.aws else ""
        raise StartError(spec.name, f"{act.name}: the price of {kind} is not known")
    return PlannedAct(act, quote.most)


def _played(planned: PlannedAct, stage: Stage) -> ActEnd:
    """Play an act, and say what it shows."""
    act, began = planned.act, time.monotonic()
    checks: list[ActCheck] = []
    trouble = ""
    try:
        for each in _of_a_killed_client(act, stage) if act.is_killed else _of_a_check(act, stage):
            checks.append(each)
            stage.say(f"  {at_terminal(str(each))}")
    except Exception as error:  # noqa: BLE001 - ranks raise what their frameworks raise
        name = "" if isinstance(error, SkyError) else f"{type(error).__name__}: "
        trouble = f"{name}{getattr(error, 'message', '') or error}"
        stage.say(f"  ✗ {at_terminal(trouble)}")
    finally:
        last = _nothing_left(stage, act)
        stage.say(f"  {at_terminal(str(last))}")
    seconds = time.monotonic() - began
    return ActEnd(
        name=act.name,
        checks=(*checks, last),
        dollars=planned.hourly * seconds / 3600,
        seconds=seconds,
        trouble=trouble,
    )


def _nothing_left(stage: Stage, act: Act) -> ActCheck:
    """Whether EC2 has nothing alive of an act's pool; what it has is ended."""
    name = stage.name_of(act)
    alive = _alive(name)
    if alive:
        for each in others(()):
            if each.entry.spec.name == name:
                with contextlib.suppress(SkyError):  # its agent may be what hangs
                    take_down(each, _PROGRAM)
        stage.left += _alive(name)
    return ActCheck("EC2 has no machine of it any more", not alive, ", ".join(alive))


def _alive(name: str) -> list[str]:
    from skyward_nb.providers.aws.sweep import machines_alive
    from skyward_nb.providers.loop_thread import LOOP

    return LOOP.start(machines_alive(name)).future.result()


# ── a pool that is checked ──────────────────────────────────────────────────────────────


def _of_a_check(act: Act, stage: Stage) -> Iterator[ActCheck]:
    """What a check finds on the act's pool; also what it had found before it failed."""
    display = RunDisplay(LogCanvas(), "")
    with open_pool(stage.options_of(act), [], display, _PROGRAM) as there:
        found, error = _surveyed(there, act)
    yield from act.judge(found)
    if error is not None:
        raise error


def _surveyed(there: PoolClient, act: Act) -> tuple[ActFindings, Exception | None]:
    found = ActFindings()
    try:
        for each in survey(there.pool.spec, there.ask):
            found = replace(found, check=each)
        if act.computes:
            told = there.ask("survey", f"computed({act.computes!r})")
            found = replace(found, computed=dict(told))
    except Exception as error:  # noqa: BLE001 - as above
        return found, error
    return found, None


# ── a client that is killed ─────────────────────────────────────────────────────────────


def hold(words: list[str]) -> None:
    """Rent a pool of these options, say that it is up, and do nothing more."""
    try:
        with open_pool(_read(words), [], RunDisplay(LogCanvas(), ""), _PROGRAM):
            print(_UP, flush=True)
            time.sleep(3600)
    except SkyError as error:
        sys.exit(at_terminal(error.message))


def _of_a_killed_client(act: Act, stage: Stage) -> Iterator[ActCheck]:
    """What becomes of the machine when the process that rented it is killed, as nobody looks after it."""
    name, command = stage.name_of(act), [sys.executable, "-c", _CLIENT, *stage.words_of(act)]
    # In a session of its own: what is typed here interrupts it once, by us.
    client = subprocess.Popen(  # noqa: S603 - this very program
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with client:
        try:
            assert client.stdout is not None
            if not any(_UP in line for line in client.stdout):
                raise StartError(name, "its pool did not come up: see above")
            machines = _alive(name)
            client.kill()
        except BaseException:
            _interrupted(client)
            raise
    was_killed = bool(machines) and client.returncode == -signal.SIGKILL
    yield ActCheck(
        "a spot machine ran, and its client was killed (SIGKILL)", was_killed, ", ".join(machines)
    )
    seconds = _seconds_until_ended(name)
    when = f"not within {_IDLE_END_LIMIT:.0f} s" if seconds is None else f"after {seconds:.0f} s"
    yield ActCheck("the machine ended by itself", seconds is not None, when)


def _interrupted(client: subprocess.Popen[str]) -> None:
    """Have a client take its pool down."""
    client.send_signal(signal.SIGINT)
    try:
        client.wait(_TAKE_DOWN_LIMIT)
    except subprocess.TimeoutExpired:
        client.kill()


def _seconds_until_ended(name: str) -> float | None:
    """How long the machines of a pool go on although nobody asks them to end; None: too long."""
    began = time.monotonic()
    while _alive(name):
        if time.monotonic() - began > _IDLE_END_LIMIT:
            return None
        time.sleep(_PAUSE)
    return time.monotonic() - began
