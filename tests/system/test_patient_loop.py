"""What came while a process stood still is read before its deadlines count."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from waiting import until

from skyward_nb.system.patient_loop import PatientLoop

_LIMIT = 2.0
_BEGIN = f"""
import asyncio, os, signal, sys, threading, time

def begin():
    print(time.monotonic() + {_LIMIT}, flush=True)  # before it stops: nobody goes on with it else
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGSTOP)).start()
"""
"""It stops itself while it waits for a line on its stdin."""
_SELECT = f"""
from skyward_nb.system.second_look import SecondLook
selector = SecondLook()
selector.register(sys.stdin, 1)
begin()
print(sys.stdin.readline() if selector.select({_LIMIT}) else "late")
"""
_TASK = f"""
from skyward_nb.system.patient_loop import PatientLoop

async def main():
    said = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), sys.stdin)
    begin()
    try:
        async with asyncio.timeout({_LIMIT}):
            print((await said.readline()).decode())
    except TimeoutError:
        print("late")

loop = PatientLoop()
loop.run_until_complete(main())
"""


@pytest.mark.parametrize("program", [_SELECT, _TASK], ids=["selector", "loop"])
def test_line_that_came_while_stopped_is_read(program: str) -> None:
    command = [sys.executable, "-c", _BEGIN + program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ends = float(process.stdout.readline())
            until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
            process.stdin.write(b"here\n")
            process.stdin.flush()
            time.sleep(max(0.0, ends + 0.1 - time.monotonic()))
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout.read().strip() == b"here"
        finally:
            process.kill()


def test_nothing_that_came_is_late_all_the_same() -> None:
    async def wait() -> float:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.Event().wait()
        return time.monotonic() - began

    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        assert runner.run(wait()) >= 0.1


def test_what_a_task_takes_long_for_does_not_let_the_next_ones_time_go_by() -> None:
    """Both are due when it is done: the line, and the end of the time in which it is to come."""

    async def wait() -> bytes:
        here, there = socket.socketpair()
        with there:
            reader, writer = await asyncio.open_connection(sock=here)

            async def work() -> None:
                there.sendall(b"here\n")
                time.sleep(0.4)  # noqa: ASYNC251 - as one that computes

            working = asyncio.create_task(work())
            async with asyncio.timeout(0.3):
                line = await reader.readline()
            await working
            writer.close()
            return line

    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        assert runner.run(wait()) == b"here\n"
