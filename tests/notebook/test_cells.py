"""Cells through a real kernel, as a front end runs them. One kernel and pool for all."""

from __future__ import annotations

import re
import textwrap

import pytest
from kernels import Kernel, Marks, ready
from later import Later
from pools import KILLED
from waiting import until

from skyward_nb.picture.record import MIME

nbclient = Later("nbclient")
nbformat = Later("nbformat")


@pytest.fixture(scope="module")
def notebook():
    with ready("import skyward_nb as sky\nimport os") as running:
        assert running.run("%%sky_remote nodes=4 grace=20s\n'ready'").result == "[0-3] 'ready'"
        yield running


def rank_cell(notebook: Kernel, body: str, line: str = "", **more):
    return notebook.run(f"%%sky_remote {line}\n{textwrap.dedent(body).strip()}", **more)


# ── what goes and what comes back ───────────────────────────────────────────────────────


def test_values_come_back_in_rank_order(notebook):
    ran = rank_cell(notebook, "int(os.environ['RANK']) * 10", "out=tens")
    assert ran.result == "[0] 0\n[1] 10\n[2] 20\n[3] 30"
    assert notebook.run("list(tens), tens[2], tens.head, len(tens), tens[1:3].ranks").result == (
        "([0, 10, 20, 30], 20, 0, 4, (1, 2))"
    )
    assert notebook.run("_ is tens or list(tens)[3]").result == "30"


def test_equal_values_are_shown_once(notebook):
    assert rank_cell(notebook, "'same'").result == "[0-3] 'same'"


def test_no_value_where_there_is_none(notebook):
    assert rank_cell(notebook, "x_none = 1").result is None
    assert rank_cell(notebook, "print()").result is None
    assert rank_cell(notebook, "1;").result is None
    assert rank_cell(notebook, "1", "gather=none").result is None


def test_gather_head_gives_the_heads_value_itself(notebook):
    assert rank_cell(notebook, "os.environ['RANK']", "gather=head").result == "'0'"


def test_namespaces_persist_and_are_each_ranks_own(notebook):
    rank_cell(notebook, "mine = [os.environ['RANK']]")
    assert rank_cell(notebook, "mine.append(1); len(mine)").result == "[0-3] 2"
    assert rank_cell(notebook, "mine[0]").result == "[0] '0'\n[1] '1'\n[2] '2'\n[3] '3'"


def test_names_are_sent_when_changed_and_only_then(notebook):
    notebook.run("data = [1, 2, 3]")
    assert rank_cell(notebook, "sum(data)").result == "[0-3] 6"
    assert "1 unchanged" in rank_cell(notebook, "sum(data)").html
    notebook.run("data.append(4)")
    ran = rank_cell(notebook, "sum(data)")
    assert ran.result == "[0-3] 10"
    assert "sent data" in ran.html


def test_a_name_assigned_on_ranks_stays_until_the_notebooks_changes(notebook):
    notebook.run("level = 1")
    assert rank_cell(notebook, "level = level + 100\nlevel").result == "[0-3] 101"
    assert rank_cell(notebook, "level").result == "[0-3] 101"
    assert notebook.run("level").result == "1"
    notebook.run("level = 2")
    assert rank_cell(notebook, "level").result == "[0-3] 2"


def test_functions_and_classes_of_the_notebook_and_what_they_read(notebook):
    notebook.run(
        "factor = 3\n"
        "def scale(x):\n    return x * factor\n"
        "class Box:\n"
        "    def __init__(self, v): self.v = v\n"
        "    def scaled(self): return scale(self.v)\n"
        "box = Box(5)"
    )
    assert rank_cell(notebook, "box.scaled(), isinstance(box, Box)").result == "[0-3] (15, True)"
    assert rank_cell(notebook, "factor = 10\nbox.scaled()").result == "[0-3] 50"
    notebook.run("back = get_ipython().run_cell_magic('sky_remote', 'gather=head', 'Box(8)')")
    assert notebook.run("isinstance(back, Box), back.scaled()").result == "(True, 24)"


def test_modules_imported_in_the_notebook_are_there(notebook):
    notebook.run("import json as j, collections.abc")
    assert rank_cell(notebook, "j.dumps([1]), collections.abc.Sized.__name__").result == (
        "[0-3] ('[1]', 'Sized')"
    )


def test_the_notebooks_import_path_is_the_ranks_too(notebook, tmp_path):
    (tmp_path / "mylib_for_ranks.py").write_text("VALUE = 7")
    notebook.run(f"import sys\nsys.path.append({str(tmp_path)!r})\nimport mylib_for_ranks")
    assert rank_cell(notebook, "mylib_for_ranks.VALUE").result == "[0-3] 7"


def test_push_says_what_is_sent(notebook):
    notebook.run("wanted, unwanted = 'w', 'u'")
    assert rank_cell(notebook, "wanted", "push=wanted").result == "[0-3] 'w'"
    ran = rank_cell(notebook, "unwanted", "push=none")
    assert ran.error[0] == "NameError"


def test_pull_brings_names_and_they_are_not_sent_back(notebook):
    rank_cell(notebook, "weights = [float(os.environ['RANK'])]", "pull=weights")
    assert notebook.run("[w[0] for w in weights]").result == "[0.0, 1.0, 2.0, 3.0]"
    assert rank_cell(notebook, "weights").result == "[0] [0.0]\n[1] [1.0]\n[2] [2.0]\n[3] [3.0]"
    ran = rank_cell(notebook, "7", "pull=nowhere,weights out=seven")
    assert "pull=nowhere: no such name on ranks 0-3" in ran.stderr
    assert notebook.run("seven.head, len(weights)").result == "(7, 4)", "the rest is bound"


def test_a_subset_of_ranks(notebook):
    assert rank_cell(notebook, "os.environ['RANK']", "ranks=1,3").result == "[1] '1'\n[3] '3'"
    assert rank_cell(notebook, "only = 1", "ranks=::2").status == "ok"
    assert rank_cell(notebook, "'only' in globals()").result == ("[0,2] True\n[1,3] False")


def test_large_arrays_go_and_come(notebook):
    pytest.importorskip("numpy")
    notebook.run("import numpy as np\nbig = np.arange(2_000_000)")
    ran = rank_cell(notebook, "big[0] = 7\nbig[:] += int(os.environ['RANK'])\nbig", "out=bigs")
    assert ran.status == "ok"
    assert notebook.run("[int(b[0]) for b in bigs], int(big[0])").result == "([7, 8, 9, 10], 0)"
    notebook.run("bigs[0][:] = 0\ndel bigs")


# ── how it looks ────────────────────────────────────────────────────────────────────────


def test_output_streams_while_the_cell_runs(notebook, tmp_path):
    seen = []

    def see(text):
        seen.append(text)
        if "step 0" in text:
            (tmp_path / "seen").touch()

    rank_cell(
        notebook,
        f"""
        import time
        for i in range(4):
            print('step', i)
            while i == 2 and not os.path.exists({str(tmp_path / "seen")!r}):
                time.sleep(0.02)
        """,
        on_update=see,
    )
    firsts = [text for text in seen if "step 0" in text and "step 3" not in text]
    assert firsts, seen
    assert "[0-3] step 3" in seen[-1]


def test_output_is_labelled_by_rank_and_order_is_kept(notebook):
    ran = rank_cell(notebook, "print('a')\nprint('rank', os.environ['RANK'])\nprint('b')")
    for rank in range(4):
        own = [line for line in ran.picture.splitlines() if line.startswith("[")]
        texts = [line.partition("] ")[2] for line in own if _has(line, rank)]
        assert texts == ["a", f"rank {rank}", "b"]


def _has(line: str, rank: int) -> bool:
    for part in line[1 : line.index("]")].split(","):
        first, _, last = part.partition("-")
        if int(first) <= rank <= int(last or first):
            return True
    return False


def test_c_level_and_child_output_is_caught(notebook):
    ran = rank_cell(
        notebook,
        """
        os.write(1, b'from fd 1\\n')
        os.system('echo from a child; echo to stderr >&2')
        import ctypes
        ctypes.CDLL(None).puts(b'from C')
        print('from Python')
        """,
        "ranks=2",
    )
    for text in ("from fd 1", "from a child", "to stderr", "from C", "from Python"):
        assert f"[2] {text}" in ran.picture


def test_magics_shell_and_await_work_on_ranks(notebook):
    notebook.run("word = 'hello'")
    ran = rank_cell(
        notebook,
        """
        !echo {word} there
        !echo I am $RANK
        %time y = 6 * 7
        import asyncio
        await asyncio.sleep(0.01)
        y
        """,
        "ranks=1",
    )
    assert ran.result == "[1] 42"
    assert "[1] hello there" in ran.picture
    assert "[1] I am 1" in ran.picture
    assert "Wall time" in ran.picture


def test_rich_displays_of_ranks_are_in_the_picture(notebook):
    ran = rank_cell(
        notebook,
        "from IPython.display import HTML, display\ndisplay(HTML('<b>rank</b>'))\nprint('<b>text</b>')",
        "ranks=0",
    )
    assert "<b>rank</b>" in ran.html
    assert "&lt;b&gt;text&lt;/b&gt;" in ran.html


def test_progress_and_metrics_are_in_the_final_picture(notebook):
    ran = rank_cell(
        notebook, "for i in sky.progress(range(5), desc='step'):\n    sky.log(loss=1 / (i + 1))"
    )
    assert "[0-3]" in ran.picture
    assert "step 5/5 · 100%" in ran.picture
    assert "loss 0.2" in ran.picture
    assert "width:100%" in ran.html


def test_a_quick_cell_costs_one_display(notebook):
    displays = rank_cell(notebook, "x = 1").displays
    # A busy machine may make it slow, and what takes longer is shown before its end.
    assert len(displays) == 1 or displays[-1][MIME]["seconds"] >= 0.2


@pytest.mark.extensive
def test_a_million_lines_make_a_small_notebook(notebook):
    ran = rank_cell(notebook, "for i in range(250_000): print('line', i)", timeout=100)
    assert ran.status == "ok"
    assert sum(len(d["text/html"]) for d in ran.displays) < 1_500_000
    assert "earlier lines are not in this text" in ran.picture
    assert "line 249999" in ran.picture


def test_stdout_of_some_ranks_alone(notebook):
    ran = rank_cell(
        notebook, "print('out')\nimport sys\nprint('err', file=sys.stderr)", "stdout=head"
    )
    assert "[0] out" in ran.picture
    assert "err" in ran.picture
    ran = rank_cell(notebook, "print('out')", "stdout=none")
    assert "out" not in ran.picture.partition("\n")[2]


def test_quiet_shows_nothing_unless_it_fails(notebook):
    assert rank_cell(notebook, "print('x')", "quiet").displays == []
    assert rank_cell(notebook, "1/0", "quiet").displays


def test_strange_output_is_survived(notebook):
    ran = rank_cell(
        notebook,
        """
        os.write(1, bytes(range(256)) + b'\\n')
        print('\\udcff lone')
        print('x' * 3_000_000)
        sys = __import__('sys')
        sys.stdout.close(); sys.stderr.close()
        os.close(1)
        """,
    )
    assert ran.status == "ok"
    assert "\\udcff lone" in ran.picture
    assert "more characters" in ran.picture
    assert "again" in rank_cell(notebook, "print('again')").picture


def test_a_display_whose_repr_fails_does_not_break_the_cell(notebook):
    ran = rank_cell(
        notebook,
        "class Bad:\n    def __repr__(self): raise ValueError('no repr')\ndisplay(Bad())\n1",
    )
    assert ran.result == "[0-3] 1"


# ── when it goes wrong ──────────────────────────────────────────────────────────────────


def test_the_users_exception_with_its_line(notebook):
    ran = rank_cell(
        notebook, "\nx = 1\n\nif x:\n    raise ValueError('mine')".strip("\n"), "on_error=wait"
    )
    number = notebook.run("len(In) - 2").result
    assert ran.error[:2] == ("ValueError", "mine")
    assert f"Cell In[{number}], line 5" in ran.traceback
    assert "---->" in ran.traceback
    assert "raised on ranks 0-3 of 4" in ran.traceback
    head, place = (
        ran.picture.splitlines()[0],
        f"Cell In[{number}], line 5: raise ValueError('mine')",
    )
    assert "ValueError on ranks 0-3 of 4: mine" in head
    assert place in ran.picture
    # On the page the message stands in the traceback alone.
    assert f"<b>ValueError on ranks 0-3 of 4, Cell In[{number}], line 5</b>" in ran.html
    assert "mine" not in ran.html


def test_the_picture_of_a_failed_run_says_what_failed_first_and_what_else(notebook, tmp_path):
    Marks(notebook, tmp_path)
    ran = rank_cell(
        notebook,
        """
        import time
        if os.environ["RANK"] == "2":
            meet(0, 1, 3)
            raise RuntimeError("\\n" + "long " * 100 + "\\nand more")
        try:
            here()
            time.sleep(60)
        finally:
            if os.environ["RANK"] < "2":
                raise KeyError
        """,
    )
    head = ran.picture.splitlines()[0]
    assert "RuntimeError on rank 2 of 4: long long" in head
    assert "and more" not in head
    assert "…" in head
    assert len(head) < 200
    assert ", line 5: raise RuntimeError(" in ran.picture
    assert "KeyError on ranks 0-1 of 4 (Cell In[" in ran.picture
    assert "skyward_nb" not in ran.traceback


def test_an_exception_through_functions_of_other_cells(notebook):
    notebook.run("class Oops(Exception): pass\n\ndef deep(k):\n    raise Oops('at', k)")
    number = notebook.run("len(In) - 2").result
    ran = rank_cell(notebook, "deep(3)")
    assert f"Cell In[{number}], line 4, in deep(k)" in ran.traceback
    assert "raise Oops('at', k)" in ran.traceback
    caught = notebook.run(
        "try:\n    get_ipython().run_cell_magic('sky_remote', 'on_error=wait', 'deep(4)')\n"
        "except Oops as e:\n    print(e.args, len(e.__notes__))"
    )
    assert "('at', 4) 1" in caught.stdout


def test_different_failures_are_all_told_and_others_values_are_kept(notebook):
    notebook.run("err = None")
    ran = notebook.run(
        "try:\n"
        "    get_ipython().run_cell_magic('sky_remote', 'on_error=wait', '''\n"
        "rank = int(os.environ['RANK'])\n"
        "[[].pop, lambda: {}['k'], lambda: 'two', lambda: 'three'][rank]()\n''')\n"
        "except Exception as e:\n    err = e"
    )
    assert ran.status == "ok"
    notes = notebook.run("print('\\n'.join(err.__notes__))").stdout
    assert "rank 0" in notes
    assert "rank 1" in notes
    assert notebook.run("list(err.results)").result == "['two', 'three']"


def test_one_rank_fails_and_the_others_are_stopped(notebook):
    ran = rank_cell(notebook, "import time\nif os.environ['RANK'] == '2': 1/0\ntime.sleep(3600)")
    assert ran.error[0] == "ZeroDivisionError"
    assert "rank 2 of 4" in ran.traceback
    assert rank_cell(notebook, "rank").status == "ok", "namespaces are kept"


def test_a_syntax_error_is_told_before_anything_runs(notebook):
    ran = rank_cell(notebook, "x = 1\ny = (2,\nz")
    assert ran.error[0] == "SyntaxError"
    assert "line 3" in ran.traceback
    assert "skyward_nb" not in ran.traceback


def test_of_a_recursion_that_is_too_deep_a_few_frames_are_shown(notebook):
    ran = rank_cell(notebook, "def deeper(n):\n    return deeper(n + 1)\ndeeper(0)")
    assert ran.error[0] == "RecursionError"
    assert "[Previous line repeated 9" in ran.traceback and len(ran.traceback) < 3000


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nods=4", "did you mean nodes"),
        ("nodes=0", "1 or more"),
        ("nodes=four", "whole number"),
        ("pool=new accelerator=A100", "simulate"),
        ("pool=new simulate", "add accelerator=..."),
        ("pool=new backend=gloo", "framework=torch"),
        ("nodes=2", "pool=NAME"),
        ("ranks=7", "ranks 0 to 3"),
        ("out=nothing", "does not end with an expression"),
        ("pull=x gather=none", "nothing to bind"),
        ("push=no_such_name", "no such name"),
        ("out=class", "not a variable name"),
        ("nodes=²", "whole number"),
        ("pool=new nodes=2 ranks=9", "ranks 0 to 1"),
        ("pool=new env=RANK=7", "each rank has its own"),
    ],
)
def test_bad_options_are_told_without_a_traceback_of_ours(notebook, line, says):
    ran = rank_cell(notebook, "x = 1", line)
    assert ran.status == "error"
    assert says in ran.stderr + ran.traceback
    assert 'File "' not in ran.traceback
    assert "skyward_nb" not in ran.traceback


def test_what_cannot_be_sent_is_named_and_nothing_else_is_lost(notebook):
    notebook.run(
        "import threading\nclass Trainer: pass\ntrainer = Trainer()\n"
        "trainer.callbacks = [1, threading.Lock()]\nfine = 5"
    )
    ran = rank_cell(notebook, "trainer, fine")
    assert ran.error[0] == "PayloadError"
    assert "trainer.callbacks[1]: _thread.lock" in ran.traceback
    assert rank_cell(notebook, "fine").result == "[0-3] 5"


@pytest.mark.parametrize("line", ["out=x", "gather=all", "gather=head"])
def test_a_value_that_is_asked_for_and_cannot_come_back_is_named(notebook, line):
    ran = rank_cell(notebook, "made = 3\n(i for i in range(3))", line)
    assert ran.error[0] == "PayloadError"
    assert "generator" in ran.traceback
    assert rank_cell(notebook, "made").result == "[0-3] 3"


def test_a_last_expression_that_cannot_travel_is_shown_and_stays(notebook):
    body = "7 if os.environ['RANK'] == '1' else (i for i in 'ab')"
    ran = rank_cell(notebook, body, "ranks=0-1")
    said = r"\[0\] <generator object <genexpr> at 0x\w+> \(stays on the ranks\)\n\[1\] 7"
    assert re.fullmatch(said, ran.result), ran
    ran = rank_cell(notebook, "import threading; threading.Lock()", "ranks=0")
    assert ran.error is None
    assert re.fullmatch(r"\[0\] <unlocked .*lock.*> \(stays on the ranks\)", ran.result), ran.result
    assert "the run's value stays on the ranks: _thread.lock cannot be pickled" in ran.picture
    assert rank_cell(notebook, "_", "ranks=0").result == ran.result, "the rank has it"
    late = notebook.run("_[0].acquire()")
    assert late.error[1].startswith("acquire: this stands for a value that stays on the ranks")


def test_a_value_that_the_notebook_cannot_rebuild_is_shown_as_its_rank_shows_it(notebook):
    body = (
        "class Odd:\n    def __reduce__(self): return int, ('no',)\n    def __repr__(self): return 'odd'\n"
        "[Odd(), 2]"
    )
    ran = rank_cell(notebook, body)
    assert ran.result == "[0-3] [odd, 2] (stays on the ranks)"
    assert "the run's value stays on the ranks: it cannot be rebuilt in the notebook" in ran.picture
    assert rank_cell(notebook, body, "out=odd").error[0] == "PayloadError"


def test_what_cannot_come_back_of_a_run_in_the_background_is_its_handles_value(notebook):
    notebook.run("%%sky_remote ranks=0 detach out=handle\n(i for i in 'ab')")
    ran = notebook.run("handle.result()")
    assert ran.result.startswith("[0] <generator object <genexpr> at ")


@pytest.mark.parametrize("how", ["import sys\nsys.exit(3)", "exit()", "raise SystemExit"])
def test_sys_exit_ends_the_cell_and_no_rank(notebook, how):
    rank_cell(notebook, "before = 1")
    assert rank_cell(notebook, how).error[0] == "SystemExit"
    assert rank_cell(notebook, "before").result == "[0-3] 1"


def test_an_exception_that_cannot_travel_is_told_by_its_name(notebook):
    ran = rank_cell(
        notebook,
        """
        import threading
        class Hard(Exception):
            lock = threading.Lock()
            def __str__(self): return 'hard one'
        raise Hard()
        """,
    )
    assert ran.error[0] == "RemoteError"
    assert "Hard: hard one" in ran.error[1]
    assert "Cell In[" in ran.traceback


def test_exceptions_with_arguments_and_attributes_of_their_own_are_themselves(notebook):
    notebook.run(
        "import threading\n"
        "class Coded(Exception):\n"
        "    def __init__(self, *, code, what):\n"
        "        super().__init__(f'{what}!')\n"
        "        self.code, self.lock = code, threading.Lock()"
    )
    caught = notebook.run(
        "try:\n"
        "    get_ipython().run_cell_magic('sky_remote', '', \"raise Coded(code=7, what='so')\")\n"
        "except Coded as e:\n"
        "    print(e, e.code, hasattr(e, 'lock'))"
    )
    assert caught.stdout == "so! 7 False\n"
    for error in ("OSError(2, 'gone', 'file')", "UnicodeDecodeError('utf-8', b'x', 0, 1, 'why')"):
        assert rank_cell(notebook, f"raise {error}").error[0] in (
            "FileNotFoundError",
            "UnicodeDecodeError",
        )


def test_a_value_that_cannot_be_rebuilt_loses_no_other_name(notebook):
    notebook.run(
        "class Bad:\n    def __reduce__(self): return int, ('no',)\nbad, well, level2 = Bad(), 2, 1"
    )
    assert rank_cell(notebook, "level2").result == "[0-3] 1"
    notebook.run("level2 = 5")
    ran = rank_cell(notebook, "bad, well, level2", "on_error=wait")
    assert ran.error[0] == "PayloadError"
    assert "bad: __main__.Bad cannot be rebuilt on ranks 0-3" in ran.traceback
    assert "skyward_nb" not in ran.traceback
    assert rank_cell(notebook, "well, level2").result == "[0-3] (2, 5)"


def test_a_name_changed_after_pull_is_sent(notebook):
    rank_cell(notebook, "pulled = [1]", "pull=pulled gather=head")
    assert rank_cell(notebook, "pulled.append(9); pulled").result == "[0-3] [1, 9]", "theirs"
    notebook.run("pulled.append(2)")
    assert rank_cell(notebook, "pulled").result == "[0-3] [1, 2]"


def test_a_name_assigned_in_a_loop_or_before_an_error_is_the_ranks_own(notebook):
    notebook.run("q = 'notebook'")
    rank_cell(notebook, "q = [0]")
    notebook.run("q = 'notebook again'")
    rank_cell(notebook, "for i in range(2): q = [i]")
    assert rank_cell(notebook, "q").result == "[0-3] [1]"
    notebook.run("q = 'third'")
    rank_cell(notebook, "q = 5.5\n1/0", "on_error=wait")
    assert rank_cell(notebook, "q").result == "[0-3] 5.5"


def test_a_users_own_keyboard_interrupt_on_one_rank_is_no_success(notebook):
    ran = rank_cell(
        notebook,
        "import time\nif os.environ['RANK'] == '0': raise KeyboardInterrupt('own')\ntime.sleep(9)",
    )
    assert ran.error[0] == "KeyboardInterrupt"
    assert "rank 0 of 4" in ran.traceback


def test_an_interrupted_await_does_not_go_on_in_the_next_cell(notebook, tmp_path):
    body = "import asyncio\ntry:\n    for i in range(1000):\n        here(); print('ghost'); await asyncio.sleep(.05)\nfinally:\n    ended = True"
    marks = Marks(notebook, tmp_path)
    ran = notebook.pressed(f"%%sky_remote\n{body}", marks.of(0, 1, 2, 3))
    assert ran.error[0] == "KeyboardInterrupt"
    ran = rank_cell(notebook, "await asyncio.sleep(0.3)\nended")
    assert ran.result == "[0-3] True"
    assert "ghost" not in ran.picture


def test_tasks_and_the_last_await_share_a_loop(notebook):
    ran = rank_cell(
        notebook, "import asyncio\nt = asyncio.create_task(asyncio.sleep(0, 'slept'))\nawait t"
    )
    assert ran.result == "[0-3] 'slept'"


def test_figures_of_a_failing_cell_are_its_own(notebook):
    pytest.importorskip("matplotlib")
    ran = rank_cell(
        notebook,
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1]);\n1/0",
        "ranks=0",
    )
    assert "image/png" in ran.html
    assert "image/png" not in rank_cell(notebook, "zz = 1", "ranks=0").html


def test_flushed_text_stands_before_what_a_child_writes(notebook):
    ran = rank_cell(
        notebook,
        "import subprocess\nfor i in range(4):\n    print('A', i, flush=True)\n    subprocess.run(['echo', f'B {i}'])",
        "ranks=0",
    )
    lines = [line for line in ran.picture.splitlines() if line.startswith("[0] ")]
    assert lines == [f"[0] {letter} {i}" for i in range(4) for letter in "AB"]


def test_one_huge_print_is_linear(notebook):
    ran = rank_cell(notebook, "print('x' * 50_000_000)", "ranks=0", timeout=60)
    assert "49,998,000 more characters" in ran.picture


def test_an_interrupt_reaches_a_rank_that_waits_for_a_child_in_c(notebook, tmp_path):
    rank_cell(notebook, "kept_c = 1")
    marks = Marks(notebook, tmp_path)
    body = "here()\nos.system('sleep 100')\n'went on'"
    ran = notebook.pressed(f"%%sky_remote\n{body}", marks.of(0, 1, 2, 3))
    assert ran.error[0] == "KeyboardInterrupt"
    assert rank_cell(notebook, "kept_c").result == "[0-3] 1"


def test_a_printing_thread_does_not_keep_an_interrupt_away(notebook, tmp_path):
    rank_cell(notebook, "kept_t = 1")
    body = (
        "import threading\nstop = threading.Event()\n"
        "def chatter():\n    while not stop.is_set(): print('noise')\n"
        "threading.Thread(target=chatter, daemon=True).start()\n"
        "try:\n    here()\n    sum(1 for _ in iter(int, 1))\nfinally:\n    stop.set()"
    )
    ran = notebook.pressed(f"%%sky_remote ranks=0\n{body}", Marks(notebook, tmp_path).of(0))
    assert ran.error[0] == "KeyboardInterrupt"
    assert "kept on all ranks" in ran.picture
    assert rank_cell(notebook, "kept_t").result == "[0-3] 1"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("os._exit(5)", "exited with code 5"),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "crashed: SIGSEGV, a memory fault"),
    ],
)
def test_a_rank_that_dies_is_named_with_its_last_words(notebook, how, says):
    rank_cell(notebook, "made_there = 1")
    notebook.run("from_here = 2")
    body = f"from_here\nprint('last words')\nif os.environ['RANK'] == '1': {how}\nimport time; time.sleep(60)"
    ran = rank_cell(notebook, body, timeout=60)
    assert ran.error[0] == "RankDied"
    assert f"rank 1 {says}" in ran.traceback
    assert "last words" in ran.traceback
    assert "made_there" in ran.traceback
    assert rank_cell(notebook, "from_here").result == "[0-3] 2", "sent again by itself"


def test_a_rank_killed_between_cells_is_told_with_what_was_lost(notebook):
    assert rank_cell(notebook, "trained = 42\nos.getpid()", "out=pids").status == "ok"
    notebook.run("os.kill(pids[3], 9)")
    until(lambda: "rank 3  node 3  killed by SIGKILL" in notebook.run("%sky status").stdout)
    ran = rank_cell(notebook, "trained")
    assert ran.error[0] == "NameError"
    assert re.search(rf"rank 3 {KILLED} before this cell", ran.traceback)
    assert "lost with the ranks" in ran.traceback
    assert "trained" in ran.traceback
    assert rank_cell(notebook, "'alive'").result == "[0-3] 'alive'"


def test_the_kernel_is_as_before(notebook):
    assert notebook.run("1 + 1").result == "2"
    assert notebook.run("%load_ext skyward_nb").status == "ok"


def test_status_restart_and_help(notebook):
    ran = notebook.run("%sky status")
    assert "4 ranks (local)" in ran.stdout
    rank_cell(notebook, "soon_gone = 1")
    ran = notebook.run("%sky restart")
    assert "is ready after" in ran.picture
    assert re.search(
        "gone with the old ranks: .*soon_gone.*, and what cells imported there", ran.picture
    )
    assert rank_cell(notebook, "'soon_gone' in globals()").result == "[0-3] False"
    assert "nodes=N" in notebook.run("%sky help").stdout
    assert "did you mean down" in notebook.run("%sky dwn").stderr
    assert "no pool 'x'" in notebook.run("%sky down pool=x").traceback
