"""What a cell costs the notebook's process, counted: no clock is asked, so a busy machine changes nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_CALLS = 1850
"""Of Python's and C's functions for one cell, of which it makes some 1,690; each new 100 are 10 to 20 us."""
COUNT = """
import contextlib, cProfile, io
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell()
profile = cProfile.Profile()
with contextlib.redirect_stdout(io.StringIO()):
    shell.run_line_magic("load_ext", "skyward_nb")
    for number in range(70):
        if number == 20:
            profile.enable()
        shell.run_cell_magic("sky_remote", "nodes=4", "x = 1")
    profile.disable()
    shell.run_line_magic("sky", "down")
print(sum(each.callcount for each in profile.getstats()) / 50)
"""


@pytest.mark.usefixtures("no_leaks")
def test_a_cell_like_the_one_before_makes_few_calls():
    ran = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    assert 500 < float(ran.stdout.splitlines()[-1]) < MOST_CALLS
