"""The program of hosts: what a login has left and what ends with it is known, and no agent outlives its holder."""

import signal
import sys
from types import SimpleNamespace

import pytest

from skyward_nb.providers import host
from skyward_nb.providers.folders import PoolFolders
from skyward_nb.providers.host import AgentStarted, ends_what_is_left

SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
LINGERING = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope\n"


YES = """echo b true; echo 'as 1 "root"'; echo as 0"""


@pytest.mark.parametrize(
    ("cgroup", "answer", "ends"),
    [
        (SESSION, YES, True),
        (SESSION, YES.replace("true", "false"), False),
        (SESSION, YES.replace('1 "root"', '2 "root" "ann"'), False),
        (SESSION, YES.replace("as 0", "'as 1 \"ann\"'"), True),
        (SESSION, YES.replace("as 0", "'as 1 \"bob\"'"), False),
        (SESSION, "exit 1", False),
        (SESSION, "echo b true", False),
        (LINGERING, YES, False),
        ("0::/\n", YES, False),
        (f"1:name=systemd:/user.slice/session-c1.scope\n{LINGERING}", YES, True),
    ],
)
def test_what_ends_with_a_login(cgroup, answer, ends, tmp_path, monkeypatch):
    tool = tmp_path / "busctl"
    tool.write_text(f"#!/bin/sh\n[ $5 = KillUserProcesses ] || exit 2\n{answer}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "cgroup").write_text(cgroup)
    assert ends_what_is_left("ann", tmp_path / "cgroup") is ends


def test_where_there_is_no_systemd_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "cgroup").write_text(SESSION)
    assert not ends_what_is_left("ann", tmp_path / "cgroup")
    assert not ends_what_is_left("ann", tmp_path / "nowhere")


# ── signals ─────────────────────────────────────────────────────────────────────────────


def test_a_signal_just_after_its_start_ends_an_agent(monkeypatch):
    """It comes with the first line that `hold` runs then."""
    handlers, removed, before = {}, [], sys.gettrace()
    agent = SimpleNamespace(remove=lambda *, told: removed.append(told))

    def start(*_):
        sys._getframe(1).f_trace = next_line
        sys.settrace(next_line)
        return AgentStarted("/a"), agent

    def next_line(frame, event, _):
        if event == "line":
            sys.settrace(before)
            handlers[signal.SIGTERM](signal.SIGTERM, frame)
        return next_line

    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(host, "start", start)
    with pytest.raises(SystemExit) as ended:
        host.hold("p-1", 1.0, 1.0, [])
    assert ended.value.code == 128 + signal.SIGTERM
    assert removed == [False]


def test_a_signal_as_its_start_is_told_ends_an_agent(tmp_path, monkeypatch):
    cancelled = []
    agent = SimpleNamespace(
        start=lambda *_: None, is_ready=lambda: True, cancel=lambda: cancelled.append(True)
    )

    def told(_runtime):
        raise SystemExit(128 + signal.SIGTERM)

    monkeypatch.setattr(host, "sweep", lambda: None)
    monkeypatch.setattr(host, "make_folders", lambda *_: PoolFolders(tmp_path, tmp_path, tmp_path))
    monkeypatch.setattr(host, "AgentProcess", lambda _folders: agent)
    monkeypatch.setattr(host, "AgentStarted", told)
    with pytest.raises(SystemExit):
        host.start("p-1", 1.0, 1.0, [])
    assert cancelled == [True]
