"""`%sky on` in IPython of a terminal, where no kernel stands before the shell."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from leaks import leaves_nothing

TYPED = """%load_ext skyward_nb
%sky on nodes=2
x = sky.rank()
x, sky.world_size()

!echo here
1 / 0
%history -l 3
%sky off
print('off', 'x' in globals())
%sky down
exit
"""


@pytest.mark.extensive
def test_cells_of_a_terminal_run_on_ranks(tmp_path):
    words = [
        "-m",
        "IPython",
        "--simple-prompt",
        "--no-banner",
        "--no-confirm-exit",
        "--colors=NoColor",
    ]
    with leaves_nothing():
        ran = subprocess.run(
            [sys.executable, *words],
            input=f"import skyward_nb as sky\n{TYPED}",
            env={**os.environ, "IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert "[0] (0, 2)" in ran.stdout, ran
    assert "[1] (1, 2)" in ran.stdout
    assert "here\n" in ran.stdout
    assert "ZeroDivisionError" in ran.stdout + ran.stderr
    assert "1 / 0\n" in ran.stdout, "history has what was typed"
    assert "off False" in ran.stdout
