"""Hosts that end what a login has left are known."""

import pytest

from skyward_nb.providers.host import ends_what_is_left

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
