"""The tests in several processes, which are forked once all tests are collected: a pytest plugin.

`--workers 4` forks four workers. Each asks for a part of the tests (`durations.Parts`), runs it, and sends
its reports; then it asks for the next one. To import and to collect thousands of tests is paid for once,
and one worker more costs its memory. Of a worker that dies, the test that it ran has failed; another one
takes the rest of its part.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

import pytest
from durations import Parts

BROUGHT = pytest.StashKey[list[Any]]()
"""What tests put there comes from all workers to the process that ends the run."""

Location: TypeAlias = tuple[str, int | None, str]


# ── what a worker says; what it is told is the next part, or None ───────────────────────


@dataclass(frozen=True)
class Began:
    nodeid: str
    location: Location


@dataclass(frozen=True)
class Reported:
    report: dict[str, Any]


@dataclass(frozen=True)
class Ended:
    nodeid: str
    location: Location


@dataclass(frozen=True)
class Warned:
    message: Any
    when: str
    nodeid: str
    location: tuple[str, int, str] | None


@dataclass(frozen=True)
class Asks:
    """For the next part."""


@dataclass(frozen=True)
class Leaves:
    """The last word of a worker: what it brings, and what went wrong beside its tests."""

    brought: list[Any]
    trouble: str


# ── the plugin ──────────────────────────────────────────────────────────────────────────


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "run the tests in so many processes, forked once all are collected"
    parser.addoption("--workers", type=int, default=0, metavar="N", help=words)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BROUGHT] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    count = config.getoption("--workers")
    # pytest itself says what could not be collected, and lists tests.
    if not count or session.testsfailed or config.option.collectonly or config.option.usepdb:
        return None
    Conductor(session).run(count)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


# ── the process that was started ────────────────────────────────────────────────────────


@dataclass
class Worker:
    """A process that runs tests, as the one that forked it knows it."""

    id: str
    pid: int
    end: int
    """A descriptor that is readable once it has ended."""
    line: Connection
    part: deque[int] = field(default_factory=deque)
    """What it was given and has not ended yet."""
    runs: Began | None = None
    has_left: bool = False


class Conductor:
    """Gives parts to workers, and tells pytest of what they report."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        nodeids = [each.nodeid for each in session.items]
        self._parts = deque(deque(part) for part in Parts().divided(nodeids))
        self._workers: list[Worker] = []
        self._begun = 0

    def run(self, count: int) -> None:
        """Run all tests, or those up to the one after which no more are asked for."""
        try:
            for _ in range(min(count, len(self._parts))):
                self._begin()
            while self._workers:
                self._listen()
        except BaseException:
            for each in self._workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGINT)
            for each in self._workers:
                each.line.close()
                os.waitpid(each.pid, 0)
            raise

    def _begin(self) -> None:
        assert threading.active_count() == 1, f"not forked beside {threading.enumerate()}"
        sys.stdout.flush()
        sys.stderr.flush()
        ours, theirs = Pipe()
        self._begun += 1
        name = f"w{self._begun}"
        # The folders of tests are in one of their worker, and all of these in one of the run.
        folders = self._session.config._tmp_path_factory
        folder = folders.getbasetemp() / name
        if not (pid := os.fork()):
            for each in self._workers:
                each.line.close()
                os.close(each.end)
            ours.close()
            folder.mkdir(0o700)
            folders._basetemp = folder
            _work(self._session, theirs, name)
        theirs.close()
        self._workers.append(Worker(name, pid, os.pidfd_open(pid), ours))

    def _listen(self) -> None:
        ready = wait([line for each in self._workers for line in (each.line, each.end)])
        for worker in list(self._workers):
            if worker.line in ready:
                self._hear(worker)
            elif worker.end in ready and not worker.line.poll():
                self._reap(worker)

    def _hear(self, worker: Worker) -> None:
        try:
            word = worker.line.recv()
        except (EOFError, ConnectionError):
            self._reap(worker)
            return
        match word:
            case Began():
                # pytest is not told: `-v` would name it twice, here and with what became of it.
                worker.runs = word
            case Reported(report):
                config = self._session.config
                made = self._hook.pytest_report_from_serializable(config=config, data=report)
                self._tell(made)
            case Ended(nodeid, location):
                self._hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
                if worker.runs is not None:
                    worker.part.popleft()
                worker.runs = None
            case Warned():
                what = {"warning_message": word.message, "when": word.when}
                what |= {"nodeid": word.nodeid, "location": word.location}
                self._hook.pytest_warning_recorded.call_historic(kwargs=what)
            case Asks():
                worker.part = self._next_part()
                with contextlib.suppress(ConnectionError):
                    worker.line.send(list(worker.part) or None)
            case Leaves(brought, trouble):
                worker.has_left = True
                self._session.config.stash[BROUGHT] += brought
                if trouble:
                    self._tell_of_trouble(Began(_own(worker.id), _NOWHERE), trouble)
            case _:
                raise TypeError(word)

    def _next_part(self) -> deque[int]:
        if self._session.shouldfail or self._session.shouldstop or not self._parts:
            return deque()
        return self._parts.popleft()

    def _tell(self, report: pytest.TestReport) -> None:
        self._hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail or self._session.shouldstop:
            self._stop()

    def _stop(self) -> None:
        """Have each worker end after the test that it runs."""
        self._parts.clear()
        for each in self._workers:
            with contextlib.suppress(ConnectionError):
                each.line.send(None)

    def _reap(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.line.close()
        os.close(worker.end)
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.has_left:
            return
        ended = worker.runs or Began(_own(worker.id), _NOWHERE)
        if worker.runs:
            worker.part.popleft()
        if worker.part:
            self._parts.appendleft(worker.part)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
        self._tell_of_trouble(ended, f"worker {worker.id} ended {how} before this test did")
        if self._parts:
            self._begin()

    def _tell_of_trouble(self, where: Began, words: str) -> None:
        report = pytest.TestReport(
            where.nodeid, where.location, keywords={}, outcome="failed", longrepr=words, when="call"
        )
        self._tell(report)


# ── a worker ────────────────────────────────────────────────────────────────────────────

_NOWHERE: Location = ("tests/workers.py", None, "what a worker was about beside its tests")


def _own(name: str) -> str:
    """What goes wrong after the last test of a worker is told of under this name."""
    return f"tests/workers.py::{name}"


class End(pytest.Item):
    """After its last test: what is for the whole session ends with it. Between two parts, what is next."""

    def runtest(self) -> None:
        """Nothing."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Without the frames of pytest, which are many."""
        own = [
            each
            for each in traceback.extract_tb(excinfo.tb)
            if "/_pytest/" not in each.filename and "/pluggy/" not in each.filename
        ]
        words = traceback.format_exception_only(excinfo.value)
        return "".join([*traceback.format_list(own), *words])

    def reportinfo(self) -> tuple[str, None, str]:
        return _NOWHERE  # type: ignore[return-value]


class Reporter:
    """Sends what pytest reports in a worker."""

    def __init__(self, config: pytest.Config, line: Connection, end: End) -> None:
        self._config = config
        self._line = line
        self._end = end
        self.begins = False
        """Warnings of before the fork, which pytest repeats to each plugin, have been told."""

    def _say(self, word: object) -> None:
        # Where nobody hears any more, what was begun is ended all the same.
        with contextlib.suppress(OSError):
            self._line.send(word)

    def pytest_runtest_logstart(self, nodeid: str, location: Location) -> None:
        if nodeid != self._end.nodeid:
            self._say(Began(nodeid, location))

    def pytest_runtest_logfinish(self, nodeid: str, location: Location) -> None:
        if nodeid != self._end.nodeid:
            self._say(Ended(nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid == self._end.nodeid and report.passed:
            return
        hook = self._config.hook
        self._say(Reported(hook.pytest_report_to_serializable(config=self._config, report=report)))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        if not self.begins:
            return
        told = warning_message
        # A warning may hold what cannot be sent.
        words = f"{told.category.__name__}: {told.message}"
        plain = warnings.WarningMessage(words, Warning, told.filename, told.lineno)
        self._say(Warned(plain, when, nodeid, location))


class Writer:
    """In the place of the terminal's reporter: what pytest-timeout writes to."""

    def __init__(self, terminal: Any) -> None:
        self._tw = terminal._tw


def _work(session: pytest.Session, line: Connection, name: str) -> None:
    """Run parts until there is none; the process ends here."""
    trouble = ""
    try:
        end = End.from_parent(session, name=name, nodeid=_own(name))
        _settle(session, Reporter(session.config, line, end))
        try:
            for part in _parts(line):
                _run(session, line, [*(session.items[each] for each in part), end])
        finally:
            session.config.hook.pytest_runtest_protocol(item=end, nextitem=None)
    except (KeyboardInterrupt, BrokenPipeError):
        """The process that forked it ends, too."""
    except BaseException:
        trouble = traceback.format_exc()
    finally:
        with contextlib.suppress(OSError):
            line.send(Leaves(session.config.stash[BROUGHT], trouble))
        os._exit(0)


def _settle(session: pytest.Session, reporter: Reporter) -> None:
    """Have of its own what a process must not share with the one that forked it."""
    config, plugins = session.config, session.config.pluginmanager
    # pytest leaves files that are for a whole run to the process without this.
    config.workerinput = {"workerid": reporter._end.name}  # type: ignore[attr-defined]
    for plugin in ("durations-of-tests", "terminalreporter"):
        found = plugins.unregister(name=plugin)
        if plugin == "terminalreporter" and found is not None:
            plugins.register(Writer(found), plugin)
    plugins.register(reporter)
    reporter.begins = True
    capture = plugins.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def _parts(line: Connection) -> Iterator[list[int]]:
    """Parts as they are given."""
    while True:
        line.send(Asks())
        if (part := line.recv()) is None:
            return
        yield part


def _run(session: pytest.Session, line: Connection, items: list[pytest.Item]) -> None:
    """Run a part, whose last item is not for it to run."""
    for item, following in itertools.pairwise(items):
        if session.shouldfail or session.shouldstop or line.poll():
            return
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
