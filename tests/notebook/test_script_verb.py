"""`%sky script`: cells as a script that gives the same as they did, under each of the ways to run it."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from kernels import ready
from later import needs
from terminals import sky

from skyward_nb.notebook.script_verbs import _line

CELLS = (
    "import random\nimport os\nimport skyward_nb as sky\nunused = 1",
    "random.seed(3)\nxs = [random.random() for _ in range(40)]\nscale = 2",
    "def part(values):\n    '''Its own.'''\n    return [scale * each for each in values]",
    "scale = 3\nxs.append(0.5)",
    "%%time\n%%sky_remote nodes=2 framework=none out=totals  # of two\n"
    "mine = sky.shard(xs)\n"
    "# of this rank\n"
    "round(sum(part(mine)), 6), sky.rank()",
    "%%sky_remote\n'another'",
)
_VALUE = re.compile(r"\((-?[\d.]+), (\d)\)")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    with ready(f"import os; os.chdir({str(folder)!r})\n%load_ext skyward_nb") as running:
        running.folder = folder
        yield running


def values(text: str) -> set[tuple[str, str]]:
    return {*_VALUE.findall(text)}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--nodes 2 --out history --framework none", "nodes=2 framework=none "),
        ('nodes=2 pip="torch numpy" pull=x keep', "nodes=2 'pip=torch numpy' keep=yes "),
        ("", ""),
    ],
)
def test_the_line_for_it_has_the_pools_options_as_a_shell_reads_them(options, line):
    cells = [SimpleNamespace(number=1, options=options)]
    assert _line(cells, (1,)) == line


def test_a_cell_as_a_script_gives_what_it_gave(notebook):
    for cell in CELLS:
        ran = notebook.run(cell)
        assert ran.status == "ok", ran.traceback
    number = int(notebook.run("print(len(In) - 3)").stdout)
    ran = notebook.run(f"%sky script train.py cells={number}")
    assert ran.status == "ok", ran.traceback
    assert ran.stdout.endswith("try: skyward-nb run nodes=2 framework=none train.py\n")
    text = (notebook.folder / "train.py").read_text()
    assert "unused" not in text and "another" not in text and "import os" not in text
    expected = values(notebook.run("print([*totals])").stdout)
    assert len(expected) == 2
    ran = sky("run", "nodes=2", "framework=none", "train.py", folder=notebook.folder)
    assert ran.code == 0, ran.stderr
    assert values(ran.stdout) == expected
    plain = subprocess.run(
        [sys.executable, "train.py"],
        cwd=notebook.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert plain.returncode == 0, plain.stderr
    ((whole, rank),) = values(plain.stdout)
    assert rank == "0"
    assert float(whole) == pytest.approx(sum(float(part) for part, _ in expected), abs=1e-5)
    assert notebook.run(f"%sky script train.py cells={number}").status == "ok", "its own file"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "name the file: %sky script FILE.py"),
        ("train.txt", "a script's name ends with .py"),
        ("mine.py", "mine.py is there, and not by %sky script"),
        ("x.py cells=999", "no cell of this session has the number 999"),
        ("x.py cells=a", "cells=a: give numbers, such as cells=3-7"),
        ("x.py cells=7-3", "7-3 is not a range of numbers"),
        ("x.py nodes=2", "nodes= is not an option here, only cells="),
        ("x.py y.py", "there is no option 'y.py'"),
    ],
)
def test_what_is_refused(notebook, line, says):
    (notebook.folder / "mine.py").write_text("mine = 1\n")
    notebook.run("%%sky_remote nodes=2 framework=none\n1")
    ran = notebook.run(f"%sky script {line}")
    assert ran.status == "error" and says in ran.streams["stderr"], ran
    assert not (notebook.folder / "x.py").exists()


def test_values_that_no_cell_makes(notebook):
    notebook.run("get_ipython().user_ns.update(given=[1, 'a'], handle=open('/dev/null'))")
    number = int(notebook.run("print(len(In))").stdout)
    assert notebook.run("%%sky_remote nodes=2 framework=none\ngiven").status == "ok"
    ran = notebook.run(f"%sky script given.py cells={number}")
    assert ran.status == "ok", ran.traceback
    assert "given = [1, 'a']" in (notebook.folder / "given.py").read_text()
    notebook.run("if False: handle = 0\n\ndef reads():\n    return handle2")
    notebook.run("get_ipython().user_ns.update(handle2=handle)")
    number = int(notebook.run("print(len(In))").stdout)
    notebook.run("reads()")
    ran = notebook.run(f"%sky script given.py cells={number}")
    said = ran.streams["stderr"]
    assert "handle2, which In[" in said and "is a TextIOWrapper that no cell" in said


@pytest.mark.extensive
@pytest.mark.torch
@needs("torch")
def test_a_script_of_torch_forms_its_group(notebook):
    for cell in (
        "import torch\nimport skyward_nb as sky",
        "torch.manual_seed(0)\nweights = torch.randn(4)",
        "%%sky_remote nodes=2 framework=torch replace\n"
        "import torch.distributed as dist\n"
        "total = weights * (sky.rank() + 1)\ndist.all_reduce(total)\n"
        "(round(total.sum().item() / dist.get_world_size() / (dist.get_world_size() + 1), 4), sky.rank())",
        "%sky script group.py",
    ):
        ran = notebook.run(cell, timeout=120)
        assert ran.status == "ok", ran.traceback
    folder, found = notebook.folder, []
    for words in (["-m", "torch.distributed.run", "--nproc-per-node=2"], []):
        ran = subprocess.run(
            [sys.executable, *words, "group.py"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert ran.returncode == 0, ran.stderr
        found.append({float(value) for value, _ in values(ran.stdout)})
    ran = sky("run", "nodes=2", "framework=torch", "group.py", folder=folder, timeout=150)
    assert ran.code == 0, ran.stderr
    found.append({float(value) for value, _ in values(ran.stdout)})
    assert len(found[0]) == 1 and found[0] == found[1] == found[2]
