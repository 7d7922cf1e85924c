"""What a cell costs the notebook's process, counted: no clock is asked, so a busy machine changes nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_CALLS = 1900
"""Of Python's and C's functions for one cell, of which it makes some 1,850; each new 100 are 10 to 20 us."""
COUNT = """
import contextlib, cProfile, io
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell()
counts = []
with contextlib.redirect_stdout(io.StringIO()):
    shell.run_line_magic("load_ext", "skyward_nb")
    for number in range(70):
        with cProfile.Profile() as profile:
            shell.run_cell_magic("sky_remote", "nodes=4", "x = 1")
        counts.append(sum(each.callcount for each in profile.getstats()))
    shell.run_line_magic("sky", "down")
# Of the quickest: where ranks are late, or answer one by one, each time it waits takes 39 calls more.
counts = sorted(counts[20:])
print(counts[0], counts[25])
"""


@pytest.mark.usefixtures("no_leaks")
def test_a_cell_like_the_one_before_makes_few_calls():
    ran = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    quick, usual = map(int, ran.stdout.split()[-2:])
    assert 500 < quick < MOST_CALLS
    assert usual < 1.25 * MOST_CALLS
