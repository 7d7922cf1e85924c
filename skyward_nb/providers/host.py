"""The program that hosts run: `python -m skyward_nb.providers.host start|hold|end|look POOL_ID ...`.

`start POOL_ID IDLE TTL [MODULE ...]` starts an agent, which outlives the login, and answers with one
line of JSON: `AgentStarted` or `AgentFailed`. `hold` does the same, and stays until the agent has ended and
its folders are gone: TERM ends the agent, USR2 is passed on to it. `end POOL_ID [now]` removes what is left of the pool, `look`
exits with 0 if its agent lives, and with 3 if it is gone.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from skyward_nb.providers.agent_process import AgentProcess
from skyward_nb.providers.folders import (
    end_agent,
    is_gone,
    make_folders,
    pool_folders,
    sweep,
)
from skyward_nb.words.errors import RuntimeFolderError

GONE = 3

_SESSION = re.compile(r"/session-[^/]+\.scope(/|$)", re.MULTILINE)
_ASK = [
    "busctl",
    "get-property",
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
    "KillUserProcesses",
    "KillExcludeUsers",
    "KillOnlyUsers",
]
_ASK_LIMIT = 5.0

RELAY = "relay"
"""The script in a pool's folder that joins its stdio to the socket whose path it is given."""

NOTE = "host.json"
"""The file in a pool's folder that has a `PoolNote`."""


class PoolNote(msgspec.Struct, frozen=True):
    """The data for other clients of a pool: its Python, and the folder of this package."""

    python: str
    package: str


class AgentStarted(msgspec.Struct, frozen=True, tag=True):
    """An agent runs; `runtime` is the folder of its sockets and its log.

    `ends_with_login`: the host ends it when the user's last login ends.
    """

    runtime: str
    ends_with_login: bool = False


class AgentFailed(msgspec.Struct, frozen=True, tag=True):
    """No agent runs, and the attempt left nothing behind."""

    message: str
    detail: str = ""


def start(
    pool_id: str, idle: float, ttl: float, modules: list[str]
) -> tuple[AgentStarted, AgentProcess] | AgentFailed:
    """Start an agent of a new pool."""
    try:
        sweep()
        folders = make_folders(pool_id, pool_id)
    except RuntimeFolderError as error:
        return AgentFailed(error.message)
    agent = AgentProcess(folders)
    try:
        note = PoolNote(sys.executable, str(Path(__file__).parents[2]))
        (folders.runtime / NOTE).write_bytes(msgspec.json.encode(note))
        relay = [sys.executable, "-I", "-S", str(Path(__file__).parent / "far" / "relay.py")]
        (folders.runtime / RELAY).write_text(f'exec {shlex.join(relay)} "$1"\n')
        agent.start(idle, ttl, modules)
        if not agent.is_ready():
            detail = agent.last_words()
            agent.cancel()
            return AgentFailed("its agent did not start", detail)
        return AgentStarted(str(folders.runtime)), agent
    except BaseException:
        agent.cancel()
        raise


def hold(pool_id: str, idle: float, ttl: float, modules: list[str]) -> int:
    """Start an agent, say so, and stay until it has ended and its folders are gone; 1 if none was started."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    # Until there is an agent, there is nobody to tell that time is short.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    started = None
    try:
        started = start(pool_id, idle, ttl, modules)
        if isinstance(started, AgentFailed):
            _say(started)
            return 1
        answer, agent = started
        signal.signal(signal.SIGUSR2, lambda number, _: agent.signal(number))
        _say(answer)
        agent.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        if isinstance(started, tuple):
            started[1].remove(told=False)
    return 0


def _say(answer: AgentStarted | AgentFailed) -> None:
    # A login shell may have printed a line without its end.
    sys.stdout.write("\n" + msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def ends_what_is_left(user: str, cgroup: Path = Path("/proc/self/cgroup")) -> bool:
    """Whether logind ends this user's processes with the login; False if that is unknown.

    Source: logind.conf(5), org.freedesktop.login1(5).
    """
    try:
        if not _SESSION.search(cgroup.read_text()):
            return False
        said = subprocess.run(  # noqa: S603 - systemd's own tool
            _ASK,
            capture_output=True,
            text=True,
            timeout=_ASK_LIMIT,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        # A line for each: `b true`, `as 1 "root"`, `as 0`.
        kills, spared, only = (shlex.split(line)[1:] for line in said.stdout.splitlines())
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return kills == ["true"] and user not in spared[1:] and (not only[1:] or user in only[1:])


def end(pool_id: str, *, at_once: bool) -> None:
    """Wait for an agent that was told to stop, and remove what is left of its pool.

    An agent that was not told to stop is ended `at_once`.
    """
    folders = pool_folders(pool_id)
    if at_once:
        end_agent(folders.runtime)
    AgentProcess(folders).remove(told=False)


def main() -> int:
    """Run the command line."""
    # The login's runtime folder may be removed with the login, while the agent stays.
    os.environ.pop("XDG_RUNTIME_DIR", None)
    match sys.argv[1:]:
        case ["start", pool_id, idle, ttl, *modules]:
            started = start(pool_id, float(idle), float(ttl), modules)
            if isinstance(started, AgentFailed):
                _say(started)
            else:
                ends = ends_what_is_left(_user())
                _say(msgspec.structs.replace(started[0], ends_with_login=ends))
        case ["hold", pool_id, idle, ttl, *modules]:
            return hold(pool_id, float(idle), float(ttl), modules)
        case ["end", pool_id, *how]:
            end(pool_id, at_once=bool(how))
        case ["look", pool_id]:
            return GONE if is_gone(pool_folders(pool_id).runtime) else 0
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
