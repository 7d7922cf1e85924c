"""The output of a run in a notebook: what is left out of it is said first, with the command that saves all."""

from __future__ import annotations

import pytest

from skyward_nb.logs.log_files import StoredRun
from skyward_nb.logs.log_reader import LogLine
from skyward_nb.reports import run_logs


@pytest.mark.parametrize("follows", [False, True])
def test_what_is_left_out_is_said_before_the_lines_with_what_saves_all(
    monkeypatch, capsys, follows
):
    lines = [LogLine(0, "stdout", f"{number:04}") for number in range(10)]
    kept = StoredRun("default-3fa2b1", 7, 0.0, 50, (0,))

    def followed(*_):
        yield from (*lines, None, LogLine(0, "stdout", "later"), None)

    monkeypatch.setattr(run_logs, "follow", followed)
    monkeypatch.setattr(run_logs, "read", lambda *_: iter(lines))
    if follows:
        run_logs.follow_log(kept, None, None, lambda: None, most=15)
    else:
        run_logs.print_log(kept, None, None, most=15)
    first, *printed = capsys.readouterr().out.splitlines()
    assert first.startswith("… 7 lines before these are not printed into the notebook: ")
    assert "%sky logs run=default-3fa2b1/7 save=FILE writes all" in first
    assert printed == ["[0] 0007", "[0] 0008", "[0] 0009", *["[0] later"] * follows]
