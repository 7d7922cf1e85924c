"""A keeper that is told that time is short, at moments when nobody listens yet."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from waiting import until

from skyward_nb.providers.far.keeper import KEEPER
from skyward_nb.providers.slurm.batch_script import keep_of, step_arguments
from skyward_nb.words.spec import PoolSpec

_NEVER = "90"


@pytest.fixture
def keeper(no_leaks):
    """`keeper(program, **variables)` runs it in a shell; each is ended as its engine ends it."""
    begun = []

    def begin(program, *words, **variables):
        begun.append(
            subprocess.Popen(
                ["/bin/sh", "-c", program, *words],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        )
        return begun[-1]

    yield begin
    for each in begun:
        each.terminate()
        each.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)


def test_a_notice_that_comes_before_the_keeper_listens_ends_nothing(keeper, tmp_path):
    slow = tmp_path / "mkdir"
    slow.write_text(
        f'#!/bin/sh\n: >{tmp_path}/here\nuntil [ -e {tmp_path}/go ]; do sleep 0.02; done\nexec /bin/mkdir "$@"\n'
    )
    slow.chmod(0o755)
    program = step_arguments(PoolSpec(name="p", provider="slurm"), "p-1")[-1]
    job = str(os.getpid())
    shell = keeper(
        program, PATH=f"{tmp_path}:{os.environ['PATH']}", SLURM_JOB_ID=job, SLURMD_NODENAME="c1"
    )
    until((tmp_path / "here").exists)
    shell.send_signal(signal.SIGUSR2)
    (tmp_path / "go").touch()
    until(lambda: Path(keep_of("p-1", job, "c1"), "env").exists() or shell.poll() is not None)
    assert shell.poll() is None
    shell.terminate()
    shell.wait()
    assert not Path(keep_of("p-1", job, "c1")).exists()


def test_notices_while_its_child_begins_end_nothing(keeper, tmp_path):
    keep = tmp_path / "keep"
    shell = keeper(KEEPER, "keeper", str(keep), _NEVER)
    until((keep / "env").exists)
    for number in range(20):
        script = keep / f"start.{number}"
        # One that ends well would end the keeper, too.
        script.write_text("sleep 0.05\nexit 3\n")
        (keep / "go").write_text(f"{script}\n")
        while not (keep / f"start.{number}.code").exists():
            assert shell.poll() is None
            shell.send_signal(signal.SIGUSR2)
            time.sleep(0.0002)  # of 100,000 a second, one within another, dash runs out of stack
        assert (keep / f"start.{number}.code").read_text() == "3\n"
    assert shell.poll() is None


def test_a_notice_while_it_waits_for_the_end_of_its_child_does_not_end_it_before(keeper, tmp_path):
    """As at a time limit of which the notice comes late: what outlives a keeper is killed, and its files stay."""
    keep = tmp_path / "keep"
    shell = keeper(KEEPER, "keeper", str(keep), _NEVER)
    until((keep / "env").exists)
    up, told, go, ended = (tmp_path / each for each in ("up", "told", "go", "ended"))
    (keep / "start").write_text(
        f"trap ': >{told}; until [ -e {go} ]; do sleep 0.02; done; : >{ended}; exit 3' TERM\n"
        f": >{up}\nwhile :; do sleep 0.02; done\n"
    )
    (keep / "go").write_text(f"{keep}/start\n")
    until(up.exists)
    shell.terminate()
    until(told.exists)
    for _ in range(20):
        shell.send_signal(signal.SIGUSR2)
        shell.send_signal(signal.SIGTERM)
    go.touch()
    assert shell.wait(60) == 143
    assert ended.exists()
    assert not keep.exists()


def test_an_end_that_comes_as_it_ends_by_itself_leaves_no_files(keeper, tmp_path):
    """As where an engine ends a machine whose agent has just ended."""
    keep, removes = tmp_path / "keep", tmp_path / "rm"
    told = '[ "$1" = -f ] || kill -TERM -"$(ps -o pgid= $$ | tr -d " ")"'
    removes.write_text(f'#!/bin/sh\n{told}\nexec /bin/rm "$@"\n')
    removes.chmod(0o755)
    shell = keeper(KEEPER, "keeper", str(keep), _NEVER, PATH=f"{tmp_path}:{os.environ['PATH']}")
    until((keep / "env").exists)
    (keep / "start").write_text("exit 0\n")
    (keep / "go").write_text(f"{keep}/start\n")
    assert shell.wait(60) == 0
    assert not keep.exists()
