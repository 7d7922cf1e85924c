"""Programs with pools that get SIGTERM or SIGHUP: their blocks are left, and their ranks end."""

from __future__ import annotations

import signal

import pytest
from functions.examples import HEAD
from scripts import begin
from tiers import few

SCRIPT = (
    HEAD
    + """
@sky.function
def forever():
    print("begun", flush=True)
    while True:
        pass

def work():
    {before}
    with sky.Compute(nodes=2) as pool:
        try:
            {inside}
        except KeyboardInterrupt:
            print("not this")
        finally:
            print("left")

async def work_async():
    async with sky.Compute(nodes=2) as pool:
        try:
            await (forever() @ pool)
        finally:
            print("left")

import asyncio
{call}
"""
)
SLEEPS = "exec('while True: time.sleep(0.1)')"
"""A signal in the moment before a long sleep is handled after it."""
ASLEEP = f"print('begun', flush=True); {SLEEPS}"


def ended(tmp_path, number, before="pass", inside="forever() @ pool", call="work()"):
    """A script that got a signal once it said that it began, and what it wrote."""
    path = tmp_path / "script.py"
    text = SCRIPT.replace("{before}", before).replace("{inside}", inside)
    path.write_text(text.replace("{call}", call))
    script = begin(path)
    assert any("begun" in line for line in iter(script.stdout.readline, ""))
    script.send_signal(number)
    out, err = script.communicate(timeout=100)
    return script.returncode, out, err


@pytest.mark.parametrize(
    ("number", "how"),
    few(
        2,
        [
            (signal.SIGTERM, {}),
            (signal.SIGTERM, {"call": "asyncio.run(work_async())"}),
            (signal.SIGHUP, {"inside": ASLEEP}),
            (signal.SIGHUP, {"inside": "(forever() > pool).result()"}),
            (signal.SIGTERM, {"inside": "pool.map(lambda _: forever.local(), range(4))"}),
        ],
    ),
)
def test_the_block_is_left_and_the_ranks_end(no_leaks, tmp_path, number, how):
    code, out, err = ended(tmp_path, number, **how)
    assert code == 128 + number, err
    assert "left" in out and "not this" not in out and "Traceback" not in err


@pytest.mark.parametrize(
    "handler", few(1, ["signal.SIG_IGN", "lambda *_: print('mine', flush=True)"])
)
def test_a_handler_of_the_user_s_own_stays(no_leaks, tmp_path, handler):
    before = f"signal.signal(signal.SIGTERM, {handler})"
    inside = f"os.kill(os.getpid(), signal.SIGTERM); {ASLEEP}"
    code, out, err = ended(tmp_path, signal.SIGHUP, before, inside)
    assert (code, out.count("left")) == (128 + signal.SIGHUP, 1), err


AFTER = (
    HEAD
    + """
@sky.function
def one():
    return 1

term = lambda: signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
print(term())
with sky.Compute(quiet=True) as outer:
    with sky.Compute(quiet=True):
        pass
    print(term(), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    there, says = os.pipe()
    child = os.fork()
    if not child:  # a worker of its own ends as it did
        os.write(says, b".")  # before that, Python drops a fork's signals
        while True:
            time.sleep(0.01)
    os.read(there, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    except SystemExit as left:
        print(left.code)
    print(one() >> outer)
print(term())
"""
)


def test_after_the_last_pool_signals_do_what_they_did(no_leaks, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(AFTER)
    out, err = begin(path).communicate(timeout=100)
    assert out.split() == ["True", "False", "True", "-15", "143", "1", "True"], err
