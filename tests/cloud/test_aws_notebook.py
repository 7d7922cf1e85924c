"""The main job, whole: from a cell with `provider=aws` to machines that are gone."""

from __future__ import annotations

import re

import pytest
from kernels import ready

pytestmark = pytest.mark.timeout(300)
START = """
import os, socket, sys
import skyward_nb as sky
%load_ext skyward_nb
here = sky.Image(interpreter=sys.executable)
"""


def test_a_cell_rents_runs_and_gives_back(cloud):
    with ready(START) as book:
        ran = book.run(
            "%%sky_remote provider=aws nodes=2 region=us-east-1 cpus=2+ image=here out=got\n"
            "print('at', socket.gethostname())\nint(os.environ['RANK']) + 40",
            150,
        )
        assert ran.status == "ok", ran.traceback
        assert book.run("print(list(got))").stdout.strip() == "[40, 41]"
        first, second = cloud.machines
        assert f"at {first.name}" in ran.picture and f"at {second.name}" in ran.picture
        assert re.search(r"\$\S+ / h", ran.picture), ran.picture
        calls = len(cloud.calls)
        again = book.run("%%sky_remote\nos.environ['RANK']")
        assert again.status == "ok" and len(cloud.calls) == calls
        assert "default" in book.run("%sky cost").stdout
        down = book.run("%sky down", 60)
        assert down.status == "ok", down.traceback
        cloud.nothing_left()
        assert "AWS: nothing was left" in book.run("%sky sweep").stdout
