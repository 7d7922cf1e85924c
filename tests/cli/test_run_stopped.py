"""`skyward-nb run` that is interrupted, killed, or read by nobody."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from terminals import COMMAND, begun, ended, said, sky, status_with
from waiting import until

BOTH = [0, 1]


def said_by_both(lines):
    """Whether both ranks have said that they began, or nothing more comes."""
    text = "".join(lines)
    return ("begun 0" in text and "begun 1" in text) or not lines[-1]


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.extensive), signal.SIGHUP],
)
def test_an_interrupt_stops_the_script_and_takes_the_pool_down(script, number):
    name = script(
        "import atexit, os, time\natexit.register(print, 'tidied')\n"
        "print('begun', os.environ['RANK'], flush=True)\ntime.sleep(60)\nprint('never')\n"
    )
    with begun("run", "nodes=2", "--json", name, folder=script.folder) as process:
        heard = []
        until(lambda: heard.append(process.stderr.readline()) or said_by_both(heard))
        process.send_signal(number)
        ran = ended(process)
    assert ran.code == 130, ran
    assert (ran.json["state"], ran.json["exit_code"]) == ("interrupted", 130)
    assert said(ran.stderr)["tidied"] == BOTH and "never" not in ran.stderr
    assert "Interrupted on ranks 0-1 · " in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.extensive
def test_a_second_interrupt_ends_what_does_not_stop(script):
    name = script(
        "import time\n"
        "while True:\n    try: print('begun', flush=True); time.sleep(60)\n"
        "    except KeyboardInterrupt: print('no', flush=True)\n"
    )
    with begun("run", "grace=60s", name, folder=script.folder) as process:
        until(lambda: "begun" in process.stdout.readline())
        process.send_signal(signal.SIGINT)
        until(lambda: "no" in process.stdout.readline())
        process.send_signal(signal.SIGINT)
        ran = ended(process)
    assert ran.code == 130, ran
    assert "rank 0 did not stop and had to be killed" in ran.stderr


def test_an_interrupt_while_the_pool_starts_leaves_nothing(script):
    name = script("print('never')")
    script(
        "import sys, time\nif 'skyward_nb.node' in sys.orig_argv: time.sleep(5)\n",
        "slow/sitecustomize.py",
    )
    path = os.pathsep.join((str(script.folder / "slow"), os.environ.get("PYTHONPATH", "")))
    words = "run", "--json", "nodes=2", name
    with begun(*words, folder=script.folder, PYTHONPATH=path) as process:
        until(lambda: "Starting" in process.stderr.readline())
        process.send_signal(signal.SIGINT)
        ran = ended(process)
    assert ran.code == 130, ran
    assert ran.json == {"error": {"type": "KeyboardInterrupt", "message": "interrupted"}}


def test_one_that_is_killed_leaves_a_pool_that_is_told_and_taken_down(script):
    # It goes on for all that is asked meanwhile, each time by a process that has to start.
    name = script("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    with begun("run", "nodes=2", "pool=p", name, folder=script.folder) as process:
        until(lambda: "begun" in process.stdout.readline())
        said = status_with("p: ")
        assert f"in use by skyward-nb run {name} (process {process.pid})" in said
        assert f"{name} has been running for" in said
        ran = sky("run", "pool=p", name, folder=script.folder)
        assert ran.code == 1 and "pool 'p' is in use by skyward-nb run train.py" in ran.stderr
        words = (
            f"pool p of skyward-nb run {name}: {name} has run for",
            f"ranks 0-1 are in {name}, line 3: time.sleep(600)",
        )
        # The other rank may be about to begin, and one that has no processor for a second does not answer.
        until(lambda: all(map(sky("check", "hang").stdout.__contains__, words)))
        process.kill()
        process.wait()
    status_with(f"left by skyward-nb run {name}, ends itself in")
    ran = sky("run", "pool=p", name, folder=script.folder)
    assert ran.code == 1 and "train.py has been running for" in ran.stderr
    assert sky("down", "p").stdout == "pool p is down: 2 ranks ended, nothing left running\n"


def test_nobody_reads(script):
    name = script(
        "import os\nfor i in range(200): print(os.environ['RANK'], i)\nprint('x' * 200_000)\n"
    )
    line = f"{' '.join(COMMAND)} run nodes=2 {name} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=script.folder,
        capture_output=True,
        text=True,
    )
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
    line = f"{' '.join(COMMAND)} logs | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
