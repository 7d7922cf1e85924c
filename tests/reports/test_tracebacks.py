"""Tracebacks of another process, and without frames of ours."""

import traceback

import pytest

from skyward_nb.protocol.message_parts import CodeFrame
from skyward_nb.reports.tracebacks import shortened, traceback_of
from skyward_nb.words.errors import PoolError


def test_frames_of_another_process_become_a_traceback(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("def step():\n    1 / 0\nstep()\n")
    frames = (CodeFrame(str(file), 3, "<module>"), CodeFrame(str(file), 2, "step"))
    error = ZeroDivisionError("division by zero").with_traceback(traceback_of(frames))
    said = traceback.format_exception(error)
    assert f'File "{file}", line 3, in <module>' in said[1]
    assert f'File "{file}", line 2, in step' in said[2]
    assert "1 / 0" in said[2]
    assert traceback_of(()) is None


def test_our_frames_are_left_out():
    @shortened
    def run(error):
        raise error

    with pytest.raises(ValueError, match="x") as raised:
        run(ValueError("x"))
    functions = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert "call" not in functions
    assert functions[-1] == "run"  # this file is no part of the package


def test_what_we_refuse_has_no_cause():
    @shortened
    def run():
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise PoolError("p", "told") from error

    with pytest.raises(PoolError) as raised:
        run()
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(("said", "line"), [(1 << 40, (1 << 31) - 1), (-5, 1), (0, 1)])
def test_lines_that_no_file_has_are_taken(said, line):
    made = traceback_of([CodeFrame("train.py", said, "step")])
    assert made.tb_lineno == line
