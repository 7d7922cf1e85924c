"""What `faulthandler` writes, read: by the Python that runs this, and by others that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skyward_nb.hangs.stacks import StackFrame, ThreadStack, threads

SCRIPT = """\
import faulthandler, os, signal, sys, threading
begun = threading.Semaphore(0)
def wait(): begun.release(), threading.Event().wait(100)
def deeper(n):
    if n: deeper(n - 1)
    elif sys.argv[1] == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    else: os.kill(os.getpid(), signal.SIGUSR1)
for _ in range(2): threading.Thread(target=wait, daemon=True).start()
for _ in range(2): begun.acquire()
faulthandler.enable(1)
faulthandler.register(signal.SIGUSR1, 1, all_threads=True, chain=False)
exec(compile("def été(n): deeper(n)\\nété(int(sys.argv[2]))", "<cell In[3]>", "exec"))
"""


def pythons() -> list[str]:
    """This Python, and what other minor versions there are."""
    found = [sys.executable]
    # Those of pyenv first: what it has in PATH runs nothing unless a version is chosen.
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (12, 13, 14):
        nearby = sorted(versions.glob(f"3.{minor}.*/bin/python"))
        other = str(nearby[-1]) if nearby else shutil.which(f"python3.{minor}")
        if other and sys.version_info[1] != minor:
            found.append(other)
    return found


def text(python: str, *words: str) -> str:
    ran = subprocess.run([python, "-c", SCRIPT, *words], capture_output=True, timeout=60)
    return ran.stdout.decode()


@pytest.mark.parametrize("python", pythons())
def test_threads_and_frames(python):
    main, *others = threads(text(python, "ask", "3"))
    assert main.is_main
    assert [spot.function for spot in main.frames] == ["deeper"] * 4 + [
        "été",
        "<module>",
        "<module>",
    ]
    assert main.frames[4:6] == (
        StackFrame("<cell In[3]>", 1, "été"),
        StackFrame("<cell In[3]>", 2, "<module>"),
    )
    assert len(others) == 2
    assert not any(thread.is_main for thread in others)
    assert all("wait" in [spot.function for spot in thread.frames] for thread in others)


@pytest.mark.parametrize("python", pythons())
def test_a_crash(python):
    main, *others = threads(text(python, "crash", "0"))
    assert main.is_main
    assert [spot.function for spot in main.frames][:2] == ["deeper", "été"]
    assert len(others) == 2


def test_a_deep_stack_is_cut_short():
    (main, *_) = threads(text(sys.executable, "ask", "300"))
    assert {spot.function for spot in main.frames} == {"deeper"}


HAND_MADE = """\
Thread 0x00007f5801f926c0 [my thread] (most recent call first):
  File "/lib/socket.py", line ??? in recv_fds

Thread 0x00007f5801f926c1 (most recent call first):
  File "/x/skyward_nb/node/control_thread.py", line 74 in _serve

Thread 0x00007f5801f926c2 (most recent call first):
  <no Python frame>

Current thread 0x00007f582584db80 (most recent call first):
  File "/x/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "<cell 1>", line 4 in <module>
  File "/x/skyward_nb/node/rank_shell.py", line 181 in _execute
  File "/x/skyward_nb/node/rank.py", line 211 in _run
"""


def test_names_of_our_own_threads_and_what_is_not_known():
    main, first, empty = threads(HAND_MADE)
    assert [spot.function for spot in main.frames][:2] == ["all_reduce", "<module>"]
    assert first == ThreadStack("my thread", False, (StackFrame("/lib/socket.py", 0, "recv_fds"),))
    assert empty == ThreadStack("0x00007f5801f926c2", False, ())


@pytest.mark.parametrize("text", ["", "\n\n", '  File "x", line 1 in f\n', "Thread 0x1 (most"])
def test_what_is_no_stack(text):
    assert threads(text) == ()


def test_what_a_terminal_would_obey_is_spelt():
    text = 'Current thread 0x1 (most recent call first):\n  File "a\\x07", line 3 in \\x1b]0;t\\Uffffffff\\xe9\n'
    (frame,) = threads(text)[0].frames
    assert (frame.file, frame.function) == ("a\\x07", "\\x1b]0;t\\Uffffffffé")
