"""Plays one case: brings its moment about, lets the fault happen, and says what came of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from faults import hands
from faults.hands import FROZEN_FOR, SOON, Hands, Left, agent_of, children, forge_of, press, reset
from faults.matrix import Case, End, Fault, Moment
from faults.scenes import AFTER, CHECK, KEPT, Script
from faults.stand import Stand
from pools import follow, found, request, values
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Output, Step
from skyward_nb.providers.local import LocalProvider
from skyward_nb.reports.rank_failures import died, exception_of
from skyward_nb.words.errors import PoolError, StartError
from skyward_nb.words.spec import PoolSpec

TIMEOUT = 1.5
ALONE = (Moment.STARTING, Moment.CLOSING)
"""Moments of which no pool is left to go on with; the next case makes a new one."""
HOWS = {
    Fault.KILLED: "SIGKILL",
    Fault.SEGFAULT: "SIGSEGV",
    Fault.EXITS: "exited with code 3",
    Fault.HANGS_UP: "closed the connection",
    Fault.CHILD: "SIGKILL",
}
GONE = {
    Fault.AGENT_KILLED: "agent on local is gone",
    Fault.AGENT_KILLED_CHILD: "agent on local is gone",
    Fault.FORGE_KILLED: "its forge ended",
    Fault.CLIENT_GONE: "no client for 2 s|its agent has ended",
}


@dataclass
class Result:
    """What came of a case: how it ended, in which words, and how long after the fault."""

    end: End
    words: str
    seconds: float
    lost: bool = False
    outcome: RunOutcome | None = None


def play(case: Case, stand: Stand, where: Path) -> Result:
    """Play it; the pool on the stand is then as the case has left it."""
    scenes = {Moment.STARTING: _starting, Moment.IDLE: _idle, Moment.CLOSING: _closing}
    script = Script(case, where)
    try:
        return scenes.get(case.moment, _in_a_run)(case, stand, script)
    finally:
        script.touch("end")


def restored(case: Case, stand: Stand, result: Result) -> None:
    """The next run is right on all ranks; what was bound on them is kept unless some were lost."""
    found = values(stand.take(case), CHECK)
    assert [rank for rank, _ in found] == list(range(case.size))
    keeps = result.end in (End.FINISHED, End.RAISED, End.INTERRUPTED, End.TIMED_OUT)
    was_bound = case.moment not in (Moment.STARTING, Moment.CLOSING, Moment.SENDING)
    if keeps and was_bound and not result.lost:
        assert [kept for _, kept in found] == [KEPT] * case.size
    stand.pool.seen()


# ── in a run ────────────────────────────────────────────────────────────────────────────


def _in_a_run(case: Case, stand: Stand, script: Script) -> Result:
    pool = stand.take(case)
    doer = Hands(case, script, pool)
    timeout = TIMEOUT if case.fault is Fault.TIMEOUT else None
    asked = request(pool, script.cell, script.namespace, timeout=timeout)
    began = time.monotonic()
    try:
        outcome = pool.run(asked, doer)
    except Left:
        return _left(case, stand, script, doer)
    except PoolError as error:
        return Result(_gone(case, error), str(error), _since(doer.struck))
    finally:
        doer.finish()
    struck = began + TIMEOUT if case.fault is Fault.TIMEOUT else doer.struck
    result = _told(case, pool, outcome, _since(struck))
    result.outcome = outcome
    _is_whole(doer.said, outcome, pool, case)
    pool.clean(outcome)
    pool.seen()
    return result


def _has_closed_its_files(pid: int) -> bool:
    """Whether only standard input, output and error are open; a process that was ended for it has none."""
    try:
        return len([*Path(f"/proc/{pid}/fd").iterdir()]) <= 3
    except OSError:
        return True


def _told(case: Case, pool: Pool, outcome: RunOutcome, seconds: float) -> Result:
    """What a notebook would tell of it."""
    lost = set(outcome.lost) - outcome.killed
    is_lost = bool(outcome.lost)
    if outcome.timed_out:
        return Result(End.TIMED_OUT, f"{sorted(outcome.stacks)}", seconds, is_lost)
    if outcome.interrupted and not _all_well(outcome):
        return Result(End.INTERRUPTED, f"killed {sorted(outcome.killed)}", seconds, is_lost)
    if outcome.failed:
        error = exception_of(outcome.failed, len(pool.ranks), pool.store)
        words = "; ".join([repr(error), *error.__notes__])
        return Result(End.RAISED, words, seconds, is_lost)
    unsendable = [(rank, bad) for rank, end in outcome.done.items() for bad in end.unsendable]
    rejected = [
        (rank, end.rejected)
        for rank, end in outcome.done.items()
        if end.rejected and end.rejected.labels
    ]
    if unsendable or rejected:
        words = "; ".join(f"rank {rank}: {bad.reason}" for rank, bad in unsendable + rejected)
        return Result(End.RAISED, words, seconds, is_lost)
    if lost:
        words = died({rank: outcome.lost[rank] for rank in lost}, {}, "").message
        return Result(End.DIED, words, seconds, True)
    if outcome.lost_before:
        return Result(End.DIED, died(outcome.lost_before, {}, "").message, seconds, True)
    assert not outcome.killed
    assert _all_well(outcome)
    return Result(End.FINISHED, "", seconds)


def _all_well(outcome: RunOutcome) -> bool:
    ends = outcome.done.values()
    return not outcome.lost and all(not end.failure and not end.rejected for end in ends)


def _gone(case: Case, error: PoolError) -> End:
    return End.DIED if isinstance(error, StartError) and "rank" in str(error) else End.POOL_GONE


def _since(when: float | None) -> float:
    return 0.0 if when is None else time.monotonic() - when


def _is_whole(said: dict[int, str], outcome: RunOutcome, pool: Pool, case: Case) -> None:
    """No word is missing, and none twice: all of it of ranks that finished, else its beginning."""
    for rank, text in said.items():
        end = outcome.done.get(rank)
        value = None
        if end is not None and end.value is not None and not end.failure:
            value = unpack(end.value, pool.store)
        if case.moment is Moment.PRINTING:
            lines = text.split("\n")[:-1]
            assert lines == [str(number) for number in range(len(lines))]
            assert value is None or value == len(lines)
            continue
        whole = "on\nend\n"
        if case.moment is Moment.STOPPING:
            whole = "on\nstopping\n"
        elif case.moment is Moment.SENDING:
            whole = "on 4000000\nend\n"
        assert text == whole if value is not None else whole.startswith(text)


# ── a client that goes ──────────────────────────────────────────────────────────────────


def _left(case: Case, stand: Stand, script: Script, doer: Hands) -> Result:
    pool = stand.pool
    agent = agent_of(pool)
    pool.leave()
    began = time.monotonic()
    if case.fault is Fault.CLIENT_GONE:
        return _gone_for_good(stand, pool, agent)
    other = found(pool)
    other.attach(lambda _: None)
    stand.put(other)
    assert other.runs.unseen is not None
    script.touch("end")
    said: dict[int, str] = {}

    def hear(event) -> None:
        if time.monotonic() - began > hands.HANG:
            raise hands.Hang(f"{case}: the run that was left has no end; ranks said {said}")
        if isinstance(event, Output) and event.stream == "stdout":
            said[event.rank] = said.get(event.rank, "") + event.text

    outcome = follow(other, hear)
    _is_whole(said, outcome, other, case)
    assert not outcome.lost
    assert sorted(said) == list(other.ranks)
    assert sorted(outcome.done) == list(other.ranks)
    if case.moment is not Moment.STOPPING:
        assert not outcome.failed
        assert all(end.value is not None for end in outcome.done.values())
    seconds = time.monotonic() - began
    # Its agent is a child of the client that left, whose thread waits for its end.
    other.close()
    return Result(End.ATTACHED_WHOLE, "", seconds)


def _gone_for_good(stand: Stand, pool: Pool, agent: int) -> Result:
    """It ends itself; whoever comes later is told."""
    began = time.monotonic()
    words = ""
    while children(agent) and time.monotonic() - began < hands.HANG:
        time.sleep(0.02)
    seconds = time.monotonic() - began
    # While it removes its files there is a folder, and no socket.
    until(lambda: not psutil.pid_exists(agent))
    with contextlib.suppress(OSError):
        stand.pool = None
    try:
        late = Pool(pool.spec, LocalProvider(), lambda _: None, pool_id=pool.pool_id)
        late.attach(lambda _: None)
    except PoolError as error:
        words = str(error)
    return Result(End.POOL_GONE, words, seconds)


# ── between runs ────────────────────────────────────────────────────────────────────────


def _idle(case: Case, stand: Stand, script: Script) -> Result:
    pool = stand.take(case)
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, script.cell), lambda _: None)
    assert len(outcome.done) == case.size
    doer = Hands(case, script, pool)
    try:
        doer.strike()
    except Left:
        return _left(case, stand, script, doer)
    watch = _Presser() if case.fault is Fault.FROZEN else lambda _: None
    try:
        if case.fault is Fault.HANGS_UP:
            # Else which is first there is open: that, or the next cell.
            rank = pool.pids[case.victim]
            until(lambda: _has_closed_its_files(rank))
        if case.dice.random() < 0.5 and case.fault is not Fault.FROZEN:
            time.sleep(SOON)
            pool.look(lambda _: None)
        outcome = pool.run(request(pool, AFTER), watch)
    except PoolError as error:
        return Result(_gone(case, error), str(error), _since(doer.struck))
    finally:
        doer.finish()
    pool.clean(outcome)
    return _told(case, pool, outcome, _since(doer.struck))


class _Presser:
    """Presses the button, once, after a moment."""

    def __init__(self) -> None:
        self._due: float | None = time.monotonic() + 0.2

    def __call__(self, event) -> None:
        if self._due is not None and time.monotonic() > self._due:
            self._due = None
            press()


# ── starting ────────────────────────────────────────────────────────────────────────────


def _starting(case: Case, stand: Stand, script: Script) -> Result:
    stand.close()
    spec = PoolSpec(**stand.options(case))
    pool = Pool(spec, LocalProvider(), lambda _: None)
    starter = _Starter(case, pool)
    try:
        pool.start(starter)
        starter.finish()
        pool.look(lambda _: None)
        outcome = pool.run(request(pool, CHECK), lambda _: None)
        result = _told(case, pool, outcome, _since(starter.struck))
        assert [rank for rank, _ in values(pool, CHECK)] == list(pool.ranks)
    except PoolError as error:
        result = Result(_gone(case, error), str(error), _since(starter.struck))
    except KeyboardInterrupt:
        result = Result(End.INTERRUPTED, "", _since(starter.struck), lost=True)
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            starter.finish()
            time.sleep(0.001)
        pool.close()
    return result


class _Starter:
    """Brings a fault about while a pool starts."""

    def __init__(self, case: Case, pool: Pool) -> None:
        self.struck: float | None = None
        self._case = case
        self._pool = pool
        self._threads: list[threading.Thread] = []

    def __call__(self, event) -> None:
        if isinstance(event, Step) and event.name == "agent" and event.done:
            self._strike()

    def finish(self) -> None:
        """Wait for what is on its way."""
        for thread in self._threads:
            thread.join()

    def _strike(self) -> None:
        fault, pool = self._case.fault, self._pool
        agent = agent_of(pool)
        self.struck = time.monotonic()
        if fault in (Fault.KILLED, Fault.SEGFAULT, Fault.FROZEN):
            self._soon(threading.Thread(target=self._hit_the_newborn, args=(agent,)))
        elif fault in (Fault.INTERRUPT, Fault.INTERRUPTS):
            press()
            if fault is Fault.INTERRUPTS:
                self._soon(threading.Timer(0.02, press))
        elif fault is Fault.AGENT_KILLED:
            os.kill(agent, signal.SIGKILL)
        elif fault is Fault.FORGE_KILLED:
            os.kill(forge_of(agent), signal.SIGKILL)
        elif fault is Fault.AGENT_FROZEN:
            os.kill(agent, signal.SIGSTOP)
            self._soon(threading.Timer(FROZEN_FOR, os.kill, (agent, signal.SIGCONT)))
        else:
            for number in range(1 if fault is Fault.RESET else hands.RESETS):
                self._soon(threading.Timer(0.03 * number, reset, (pool,)))

    def _soon(self, thread: threading.Thread) -> None:
        self._threads.append(thread)
        thread.start()

    def _hit_the_newborn(self, agent: int) -> None:
        forge, until = forge_of(agent), time.monotonic() + hands.HANG
        while time.monotonic() < until:
            born = children(forge)
            if len(born) > self._case.victim:
                self.struck = time.monotonic()
                os.kill(born[self._case.victim], hands.SIGNALS[self._case.fault])
                if self._case.fault is Fault.FROZEN:
                    time.sleep(0.1)
                    press()
                return


# ── closing ─────────────────────────────────────────────────────────────────────────────


def _closing(case: Case, stand: Stand, script: Script) -> Result:
    pool = stand.take(case)
    agent, fault = agent_of(pool), case.fault
    forge, victim = forge_of(agent), pool.pids[case.victim]

    def strike() -> None:
        with contextlib.suppress(ProcessLookupError):
            if fault in (Fault.KILLED, Fault.SEGFAULT, Fault.FROZEN):
                os.kill(victim, hands.SIGNALS[fault])
            elif fault is Fault.AGENT_KILLED:
                os.kill(agent, signal.SIGKILL)
            elif fault is Fault.FORGE_KILLED:
                os.kill(forge, signal.SIGKILL)
            elif fault in (Fault.RESET, Fault.RESETS):
                reset(pool)
            elif fault is Fault.AGENT_FROZEN:
                os.kill(agent, signal.SIGSTOP)
                time.sleep(FROZEN_FOR)
                os.kill(agent, signal.SIGCONT)
            else:
                press()
                if fault is Fault.INTERRUPTS:
                    time.sleep(SOON)
                    press()

    timer = threading.Timer(case.dice.uniform(0, 0.01), strike)
    # Not before it closes: that would be an interrupt of what comes before.
    pool.closing.before_close.append(timer.start)
    began = time.monotonic()
    ended = End.FINISHED
    try:
        pool.close()
    except KeyboardInterrupt:
        # Nor after it, which is when the agent has gone.
        ended = End.INTERRUPTED if psutil.pid_exists(agent) else End.FINISHED
    seconds = time.monotonic() - began
    for _ in range(3):
        # It may be closed sooner than the button is pressed, once or twice.
        with contextlib.suppress(KeyboardInterrupt):
            timer.join()
            time.sleep(0.001)
    stand.pool = None
    return Result(ended, "", seconds)


def check(case: Case, result: Result) -> None:
    """It ended as it must, and the words say what is to be known."""
    assert result.end is case.end, f"{result.end.value}: {result.words}"
    assert not (result.lost and case.keeps_all), (
        f"ranks had to go: {result.outcome and result.outcome.lost}"
    )
    if result.outcome is not None and case.keeps_all:
        _check_the_report(case, result.outcome)
    if result.end is End.DIED:
        assert re.search(rf"\brank {case.victim}\b", result.words), result.words
        assert re.search(HOWS[case.fault], result.words), result.words
    elif result.end is End.RAISED:
        assert re.search(rf"\brank {case.victim}\b|all \d+ ranks|1 of 1", result.words), (
            result.words
        )
        assert "on purpose" in result.words
    elif result.end is End.POOL_GONE:
        assert re.search(GONE[case.fault], result.words), result.words


def _check_the_report(case: Case, outcome: RunOutcome) -> None:
    """Where each rank was when the time was over; who waited in which collective for whom."""
    everyone = set(range(case.size))
    if outcome.timed_out:
        assert {rank for rank, text in outcome.stacks.items() if text} == everyone
    if case.moment is Moment.COLLECTIVE and case.end is not End.FINISHED:
        waited = {rank for rank, where in outcome.waited_in.items() if "all_reduce" in where}
        assert waited == everyone - {case.absent}
        assert outcome.was_reformed
