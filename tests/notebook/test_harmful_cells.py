"""Cells that harm their own process: each ends with words on it, and the next cell is right."""

from __future__ import annotations

import os
import re

import pytest
from tiers import few

NEXT = "%%sky_remote\nimport subprocess\nlist(range(300_000))[-1], subprocess.run(['false']).returncode"
SIGNALS = """
import signal
for number in signal.valid_signals():
    try:
        {change}
    except (OSError, ValueError):
        pass
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may change its user")


def sky(notebook, code, line="nodes=2 grace=20s"):
    return notebook.run(f"%%sky_remote {line}\n{code}")


@pytest.fixture
def ranks(notebook):
    assert sky(notebook, "kept = 7").status == "ok"
    return notebook


def next_is_right(notebook):
    return notebook.run(NEXT).result == "[0-1] (299999, 1)"


@pytest.mark.parametrize(
    ("cell", "words"),
    few(
        1,
        [
            ("os.closerange(3, 4000)", "closed the connection to its agent (os.closerange, "),
            pytest.param("os.setuid(65534)", "gave up the user of the pool", marks=as_root),
        ],
    ),
)
def test_a_rank_that_is_of_no_use_any_more_is_begun_anew(ranks, cell, words):
    ran = sky(ranks, f"import os\n{cell}")
    assert ran.error[0] == "RankDied"
    # One that is late may be interrupted before it does so: by what befell the other.
    assert re.match(f"ranks? [01-]+ {re.escape(words)}", ran.error[1]), ran.error[1]
    assert "killed" not in ran.error[1].partition("\n")[0], ran.error[1]
    assert "lost with the ranks: kept" in ran.error[1]
    assert next_is_right(ranks)


@as_root
def test_a_user_that_can_be_had_back_is(ranks):
    assert sky(ranks, "import os\nos.seteuid(65534)").status == "ok"
    assert next_is_right(ranks)
    assert sky(ranks, "kept, os.geteuid()").result == "[0-1] (7, 0)"


def test_files_that_nobody_may_open_are_not_those_of_values(ranks):
    assert sky(ranks, "import os\nos.umask(0o777)").result == "[0-1] 18"
    assert next_is_right(ranks)
    assert sky(ranks, "kept, os.umask(0o22)").result == "[0-1] (7, 511)"


@pytest.mark.parametrize(
    "change",
    few(
        1,
        [
            "signal.signal(number, signal.SIG_IGN)",
            "signal.signal(number, signal.SIG_DFL)",
            "signal.pthread_sigmask(signal.SIG_BLOCK, [number])",
        ],
    ),
)
def test_signals_that_the_pool_needs_are_put_back(ranks, change):
    ran = sky(ranks, SIGNALS.format(change=change))
    assert ran.status == "ok"
    assert "SIGINT, SIGURG, SIGRTMIN+5" in ran.picture
    assert "handled as before this cell again" in ran.picture
    assert next_is_right(ranks)
    stopped = ranks.stopped("%%sky_remote\nprint('here')\nimport time\ntime.sleep(60)")
    assert stopped.error[0] == "KeyboardInterrupt" and "namespaces kept" in stopped.picture
    late = sky(ranks, "import time\ntime.sleep(60)", "timeout=5s")
    assert "time.sleep(60)" in late.error[1], "its stack was asked for by a signal"
    assert sky(ranks, "kept").result == "[0-1] 7"


def test_a_handler_of_the_users_own_stays(ranks):
    cell = (
        "import signal, os\nheard = []\nsignal.signal(signal.SIGUSR1, lambda *_: heard.append(1))"
    )
    assert "handled as before" not in sky(ranks, cell).picture
    assert sky(ranks, "os.kill(os.getpid(), signal.SIGUSR1)\nheard").result == "[0-1] [1]"


@pytest.mark.parametrize("kind", few(1, ["SystemError", "SystemExit"]))
def test_a_repr_that_raises(ranks, kind):
    made = f"class Odd:\n    def __repr__(self): raise {kind}('no')\n"
    assert sky(ranks, f"{made}Odd()").result == f"[0-1] <Odd, its repr raises {kind}>"
    assert next_is_right(ranks)
    listed = ranks.run("%sky vars")
    assert listed.status == "ok" and "kept" in listed.stdout
    assert sky(ranks, "kept").result == "[0-1] 7"


def test_an_exception_that_cannot_say_its_text(ranks):
    text = "class Error(Exception):\n    def __str__(self): raise SystemError('no')\n    __repr__ = __str__"
    shown = sky(ranks, f"{text}\nraise Error()", "nodes=2 grace=20s on_error=wait")
    assert shown.picture.startswith("Error on ranks 0-1 of 2: its __str__ raised SystemError")
    assert shown.error[:2] == ("Error", "its __str__ raised SystemError")
    assert "\nError: its __str__ raised SystemError\nraised on ranks 0-1" in shown.traceback
    assert "skyward_nb" not in shown.traceback
    assert sky(ranks, "kept").result == "[0-1] 7"


ERRORS = {
    "sky.barrier()": "RuntimeError: sky.barrier() needs a process group",
    "sky.mesh()": "RuntimeError: sky.mesh() needs a pool made with framework=",
    "sky.log(loss='x')": "TypeError: sky.log(loss=...): a str is not one number",
    "sky.shard([1], [1, 2])": "ValueError: sky.shard: arrays of unequal length",
    "sky.shard(object())": "TypeError: sky.shard: object cannot be split",
    "for _ in sky.progress(3): pass": "TypeError: 'int' object is not iterable",
    "sky.nonsense": "AttributeError: module 'skyward_nb' has no attribute 'nonsense'",
}


def test_an_error_of_the_packages_functions_shows_the_users_line_alone(ranks):
    ranks.run("import skyward_nb as sky")
    for cell, error in ERRORS.items():
        ran = sky(ranks, cell)
        assert f"----> 2 {cell}" in ran.traceback and error in ran.traceback, cell
        assert "File " not in ran.traceback and "direct cause" not in ran.traceback, cell
        assert sky(ranks, "kept").result == "[0-1] 7", cell
