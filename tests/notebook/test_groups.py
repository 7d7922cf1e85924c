"""Exception groups of ranks in a shell, which IPython would not let render themselves."""

from __future__ import annotations

import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.reports.exception_groups import is_shown, leave, show_groups
from skyward_nb.reports.rank_failures import show


@pytest.fixture
def shell(monkeypatch):
    shell = InteractiveShell()
    shown = []
    monkeypatch.setattr(shell, "_showtraceback", lambda *each: shown.append(each))
    shell.shown = shown
    yield shell
    shell.history_manager.end_session()


def group(lines=None):
    error = ExceptionGroup("several", [ValueError("one")])
    if lines:
        show(error, lines)
    return error


def test_a_group_that_renders_itself_is_shown_so_and_remembered(shell, capsys):
    show_groups(shell)
    show_groups(shell)
    error = group(["its", "lines"])
    shell.showtraceback((type(error), error, None))
    assert shell.shown == [(ExceptionGroup, error, ["its", "lines"])]
    assert sys.last_value is error
    assert capsys.readouterr().err == ""


def test_others_are_shown_as_before(shell, capsys):
    show_groups(shell)
    try:
        raise group()
    except ExceptionGroup:
        shell.showtraceback()
    assert "several" in capsys.readouterr().err
    error = ValueError("plain")
    shell.showtraceback((ValueError, error, None))
    assert [each[1] for each in shell.shown] == [error]


def test_a_shell_is_left_as_it_was(shell):
    was = shell.showtraceback
    leave(shell)
    show_groups(shell)
    assert is_shown(shell)
    leave(shell)
    assert not is_shown(shell)
    assert shell.showtraceback == was
