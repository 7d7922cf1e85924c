"""A kernel that lives for days: values that only IPython's history holds are let go."""

from __future__ import annotations

import random
import re

import pytest
import soak_kernel

pytest.importorskip("numpy")
MAPPED = r"sum('skyward_nb' in line for line in open('/proc/self/maps'))"
"""How many values of ranks are mapped."""
LARGE = "%%sky_remote nodes=2 {line}\nimport numpy as np\nnp.full(7_500_000, {number}.)"
"""Returns 60 MB of each rank: what is kept without a name is two such values."""


def large(notebook, number, line=""):
    ran = notebook.run(LARGE.format(number=number, line=line))
    assert ran.status == "ok", ran
    return int(notebook.run("len(In) - 2").result)


@pytest.mark.extensive
def test_hundreds_of_mixed_cells_leave_a_kernel_as_it_was(fresh, capsys):
    soak_kernel.begin(fresh)
    before = soak_kernel.held(fresh)
    dice = random.Random(5)
    soak_kernel.play(fresh, range(400), dice)
    assert capsys.readouterr().out == ""
    after = soak_kernel.held(fresh)
    # Sockets between the threads of the kernel come and go.
    assert after.descriptors < before.descriptors + 8
    assert after.threads <= before.threads
    assert after.values < 350, "256 MB, the last three and what has a name"


@pytest.mark.extensive
def test_the_oldest_values_without_a_name_are_let_go_and_say_so(fresh):
    first = large(fresh, 1)
    named = large(fresh, 2, "out=kept")
    fresh.run(f"also = [Out[{large(fresh, 3)}]]")
    later = [large(fresh, number) for number in range(4, 9)]
    shown = fresh.run(f"Out[{first}]").result
    assert shown == fresh.run(f"_{first}").result
    assert shown.startswith(f"<the value of cell {first} (120 MB) was dropped: the notebook keeps")
    assert "out=NAME" in shown
    for reads in (f"Out[{first}][0]", f"Out[{first}].head"):
        refused = fresh.run(reads).error
        assert refused[0] in ("LookupError", "AttributeError") and "out=NAME" in refused[1]
    values = f"[Out[{named}][0][0], also[0][1][0], *(Out[n][0][0] for n in {later[-3:]})]"
    assert re.findall(r"\d\.", fresh.run(values).result) == ["2.", "3.", "6.", "7.", "8."]
    assert "was dropped" in fresh.run(f"Out[{later[0]}]").result
    # Of both ranks: kept, also, those that `_`, `__` and `___` have had, and two more.
    assert int(fresh.run(MAPPED).result) <= 2 * (2 + 3 + 2)


def test_what_is_taken_out_of_the_history_is_given_back(fresh):
    numbers = [large(fresh, number) for number in range(2)]
    assert int(fresh.run(MAPPED).result) == 4
    for _ in range(3):
        fresh.run("0")  # `_`, `__`, `___`
    fresh.run(f"for n in {numbers}:\n    del Out[n], globals()[f'_{{n}}']")
    assert fresh.run(MAPPED).result == "0"


def test_values_of_runs_in_the_background_go_with_their_handles_once_they_have_ended(fresh):
    fresh.run("%%sky_remote nodes=1 pool=other detach\nimport time\ntime.sleep(600)")
    running = int(fresh.run("len(In) - 2").result)
    handles = []
    for number in range(5):
        handles.append(large(fresh, number, "detach"))
        assert fresh.run(f"Out[{handles[-1]}].wait()").result == "True"
    large(fresh, 9)
    assert "was dropped" in fresh.run(f"Out[{handles[0]}]").result
    assert fresh.run(f"Out[{running}].status").result == "'running'"
    assert fresh.run(f"Out[{handles[-1]}].result().head[0]").result == "np.float64(4.0)"


def test_a_value_of_the_notebooks_own_is_left_alone(fresh):
    large(fresh, 0)
    fresh.run("import numpy as np")
    own = "get_ipython().run_cell_magic('sky_remote', '', 'import numpy as np\\nnp.ones(9_000_000)')\n"
    ran = fresh.run(own + "np.full(9_000_000, 5.)")
    assert ran.status == "ok", ran
    number = int(fresh.run("len(In) - 2").result)
    for each in range(6):
        large(fresh, each)
    assert fresh.run(f"Out[{number}][0]").result == "np.float64(5.0)"
