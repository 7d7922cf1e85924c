"""`skyward-nb run`: scripts on real pools, to every end that there is."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest
from leaks import traces
from terminals import said, sky
from tiers import few

from skyward_nb.cli.script import ScriptEnd, _exit_code
from skyward_nb.words.errors import RankDied

BOTH = [0, 1]


def run(script, *words, **env):
    return sky("run", *words, folder=script.folder, **env)


# ── a good end ──────────────────────────────────────────────────────────────────────────


def test_a_script_runs_as_main_on_every_rank_as_with_torchrun(script):
    script("VALUE = 'of a module beside it'", "sub/beside.py")
    name = script(
        "import json, os, sys\n"
        "import beside\n"
        "names = 'RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK'.split()\n"
        "if __name__ == '__main__':\n"
        "    print(json.dumps([{n: os.environ.get(n) for n in names}, sys.argv, __file__,\n"
        "        os.getcwd(), beside.VALUE, bool(os.environ['MASTER_ADDR']),\n"
        "        int(os.environ['MASTER_PORT']) > 0, sys.modules['__main__'].names == names]))\n",
        "sub/train.py",
    )
    ran = run(script, "nodes=2", "--ranks-per-node", "2", name, "--lr", "0.1", "nodes=3", "-h")
    assert ran.code == 0, ran.stderr
    lines = sorted(line.partition("] ")[2] for line in ran.stdout.splitlines())
    assert len(lines) == 4
    path = str(script.folder / name)
    for rank, line in enumerate(sorted(map(json.loads, lines), key=lambda each: each[0]["RANK"])):
        env, argv, file, folder, *rest = line
        assert env["RANK"] == str(rank) and env["WORLD_SIZE"] == "4"
        assert env["LOCAL_RANK"] == str(rank % 2) and env["LOCAL_WORLD_SIZE"] == "2"
        assert env["NODE_RANK"] == env["GROUP_RANK"] == str(rank // 2)
        assert argv == [path, "--lr", "0.1", "nodes=3", "-h"]
        assert (file, folder) == (path, str(script.folder))
        assert rest == ["of a module beside it", True, True, True]


def test_a_document_alone_is_on_stdout(script):
    name = script(
        "import os, skyward_nb as sky, sys\n"
        "print('out'); print('err', file=sys.stderr)\n"
        "sky.log(loss=float(os.environ['RANK']), bad=float('nan'))\n",
        "two words\nand a line.py",
    )
    ran = run(script, "--json", "nodes=2", "pool=p", name)
    assert ran.code == 0, ran.stderr
    end = msgspec.json.decode(ran.stdout, type=ScriptEnd)
    assert json.loads(msgspec.json.encode(end)) == ran.json
    assert (end.script, end.pool, end.state, end.exit_code) == (name, "p", "finished", 0)
    assert end.run.startswith("p-") and end.run.endswith("/1") and end.seconds > 0
    assert [(each.rank, each.node, each.state) for each in end.ranks] == [
        (0, 0, "done"),
        (1, 1, "done"),
    ]
    assert [each.metrics for each in end.ranks] == [
        {"loss": 0.0, "bad": None},
        {"loss": 1.0, "bad": None},
    ]
    assert not (end.failures or end.died or end.traceback)
    assert said(ran.stderr)["out"] == said(ran.stderr)["err"] == BOTH
    assert "finished in" in ran.stderr


def test_what_a_process_does_at_its_end_is_done(script):
    name = script(
        "import atexit, concurrent.futures, multiprocessing, threading, time\n"
        "held = open('held.txt', 'w'); held.write('kept'); loop = [held]; loop.append(loop)\n"
        "executor = concurrent.futures.ThreadPoolExecutor(1)\n"
        "def later(what):\n"
        "    time.sleep(0.2)\n"
        "    print(what, flush=True)\n"
        "atexit.register(print, 'last')\n"
        "atexit.register(lambda: 1 / 0)\n"
        "@atexit.register\n"
        "def first(): print('first')\n"
        "def never(): print('never')\n"
        "atexit.register(never); atexit.unregister(never)\n"
        "if __name__ == '__main__':\n"
        "    print('main', flush=True)\n"
        "    executor.submit(later, 'executor')\n"
        "    threading.Thread(target=later, args=['thread']).start()\n"
        "    multiprocessing.Process(target=later, args=['child']).start()\n"
    )
    ran = run(script, name)
    assert ran.code == 0, ran.stderr
    said = [line.removeprefix("[rank 0] ") for line in ran.stdout.splitlines()]
    assert said[0] == "main" and said[-2:] == ["first", "last"]
    assert sorted(said[1:-2]) == ["child", "executor", "thread"]
    assert "ZeroDivisionError" in ran.stderr
    assert (script.folder / "held.txt").read_text() == "kept"


@pytest.mark.extensive
def test_a_script_finds_no_notebook(script):
    name = script(
        "try:\n    get_ipython\nexcept NameError:\n    print('none')\nimport IPython\nquit()\n"
    )
    ran = run(script, "quiet", name)
    assert ran.code == 0 and ran.stdout == "" and ran.stderr == ""
    ran = run(script, "stdout=0", "nodes=2", name)
    assert ran.stdout == "[rank 0] none\n"


@pytest.mark.extensive
def test_a_folder_with_a_main(script):
    script("import part\nprint(part.NAME, __name__)", "app/__main__.py")
    script("NAME = 'part of it'", "app/part.py")
    ran = run(script, "app", "x")
    assert ran.stdout == "[rank 0] part of it __main__\n", ran


def test_defaults_shape_the_pool(script):
    script("[tool.skyward]\nnodes = 3\n", "pyproject.toml")
    name = script("import os; print(os.environ['WORLD_SIZE'], os.environ['MINE'])")
    ran = run(script, name, SKYWARD_ENV="MINE=1")
    assert said(ran.stdout) == {"3 1": [0, 1, 2]}, ran
    ran = run(script, "nodes=1", "env=MINE=2", name, SKYWARD_ENV="MINE=1")
    assert ran.stdout == "[rank 0] 1 2\n", ran


# ── other ends ──────────────────────────────────────────────────────────────────────────


def test_an_exception_is_shown_as_python_shows_it_and_ends_with_1(script):
    name = script(
        "import os\n"
        "def fail():\n"
        "    raise ValueError('boom')\n"
        "if os.environ['RANK'] == '1':\n"
        "    fail()\n"
    )
    # Else a rank that begins late is stopped, and that is told, too.
    ran = run(script, "nodes=2", "on_error=wait", "--json", name)
    assert ran.code == 1
    path = script.folder / name
    assert ran.json["traceback"] == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 5, in <module>',
        "    fail()",
        *["    ~~~~^^"] * (sys.version_info >= (3, 13)),
        f'  File "{path}", line 3, in fail',
        "    raise ValueError('boom')",
        "ValueError: boom",
        f"raised on rank 1 of 2, {name}, line 3: raise ValueError('boom')",
    ]
    assert "\n".join(ran.json["traceback"]) in ran.stderr
    (failure,) = ran.json["failures"]
    assert (failure["ranks"], failure["where"], failure["line"]) == ([1], name, 3)
    assert (ran.json["state"], ran.json["exit_code"]) == ("failed", 1)
    assert "skyward_nb" not in ran.stderr and "runpy" not in ran.stderr


@pytest.mark.parametrize(
    ("state", "error", "code"),
    [
        ("finished", None, 0),
        ("failed", SystemExit(5), 5),
        ("failed", SystemExit(256), 1),
        ("failed", SystemExit("no good"), 1),
        ("failed", SystemExit(1.5), 1),
        ("failed", RankDied({0: "exited"}, "exited"), 1),
        ("interrupted", KeyboardInterrupt(), 130),
    ],
)
def test_the_exit_code_of_an_end(state, error, code):
    assert _exit_code(state, error) == code


@pytest.mark.parametrize(
    ("last", "code", "says"),
    few(
        2,
        [
            pytest.param("sys.exit(0)", 0, "", marks=pytest.mark.extensive),
            ("sys.exit()", 0, ""),
            ("exit(3)", 3, ""),
            ("sys.exit('no good')", 1, "no good"),
            pytest.param("sys.exit(1.5)", 1, "1.5", marks=pytest.mark.extensive),
            ("os._exit(7)", 1, "exited with code 7"),
            pytest.param(
                "os.kill(os.getpid(), 9)", 1, "killed by SIGKILL", marks=pytest.mark.extensive
            ),
        ],
    ),
)
def test_exit_codes(script, last, code, says):
    name = script(f"import os, sys\n{last}\nprint('never')\n")
    ran = run(script, "nodes=2", "on_error=wait", name)
    assert ran.code == code, ran
    assert says in ran.stderr and not ran.stdout
    assert "Traceback" not in ran.stderr
    if says in ("no good", "1.5"):
        assert said(ran.stderr)[says] == BOTH


def test_the_rank_that_failed_first_counts_and_the_others_are_stopped(script):
    name = script(
        "import os, sys, time\nif os.environ['RANK'] == '2': sys.exit(5)\ntime.sleep(60)\n"
    )
    ran = run(script, "nodes=3", "--json", name)
    assert ran.code == 5 and ran.json["exit_code"] == 5
    assert [each["ranks"] for each in ran.json["failures"]] == [[2]]
    assert {each["rank"]: each["state"] for each in ran.json["ranks"]} == {
        0: "stopped",
        1: "stopped",
        2: "failed",
    }


@pytest.mark.extensive
def test_a_script_that_takes_too_long(script):
    name = script("import time\nwhile True:\n    time.sleep(0.1)\n")
    ran = run(script, "timeout=5s", name)
    assert ran.code == 1
    assert "after 5 s rank 0 was in train.py, line 3: time.sleep(0.1)" in ran.stderr
    assert "<%sky>" not in ran.stderr


def test_what_is_no_python_is_told_before_anything_starts(script):
    before = traces()
    ran = run(script, "nodes=2", script("x = = 1\n"))
    assert ran.code == 1 and traces() <= before
    assert ran.stderr.splitlines()[0].strip() == 'File "train.py", line 1'
    assert "SyntaxError" in ran.stderr and "Starting" not in ran.stderr


def test_a_syntax_error_in_a_module_reads_as_python_shows_it(script):
    script("y = = 2\n", "beside.py")
    ran = run(script, script("import beside\n"))
    assert ran.code == 1
    assert f'  File "{script.folder / "train.py"}", line 1, in <module>' in ran.stderr
    assert f'  File "{script.folder / "beside.py"}", line 1' in ran.stderr
    assert "SyntaxError: invalid syntax" in ran.stderr
