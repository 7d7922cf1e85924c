"""What a rank writes about its threads, whoever of them comes first and however late."""

from __future__ import annotations

import asyncio
import os

import pytest

from skyward_nb.node import stack_pipe
from skyward_nb.node.stack_pipe import OTHERS_END, StackPipe

OTHERS = b'Thread 0x1 (most recent call first):\n  File "a.py", line 1 in other\n\n' + OTHERS_END
MAIN = (
    b'Stack (most recent call first):\n  File "b.py", line 2 in main\n'
    b'  File "<frozen runpy>", line 88 in _run_code\n'
    b'  File "<frozen runpy>", line 198 in _run_module_as_main\n'
)
DEEP = b'Stack (most recent call first):\n  File "b.py", line 2 in main\n  ...\n'
BOTH = (OTHERS[:-1] + MAIN).decode()


async def looked(*, at_others=(), at_main=()) -> tuple[str, list[str]]:
    """What is answered where these are written then, each so many seconds later; and in which order."""
    loop = asyncio.get_running_loop()
    pipe, steps = StackPipe(loop), []
    write = pipe.open()

    def asked(step, texts):
        steps.append(step)
        for later, text in texts:
            loop.call_later(later, os.write, write, text)

    answered = loop.create_future()
    pipe.ask(
        lambda: asked("others", at_others), lambda: asked("main", at_main), answered.set_result
    )
    try:
        return await asyncio.wait_for(answered, 60), steps
    finally:
        pipe.close()
        os.close(write)


@pytest.mark.parametrize("later", [0, 0.1])
def test_the_main_thread_is_asked_once_the_others_are_told(later):
    text, steps = asyncio.run(looked(at_others=[(later, OTHERS)], at_main=[(0, MAIN)]))
    assert text == BOTH and steps == ["others", "main"]


def test_others_that_are_told_in_parts_are_not_mixed_with_the_main_thread():
    parts = [(0, OTHERS[:30]), (0.05, OTHERS[30:])]
    text, _ = asyncio.run(looked(at_others=parts, at_main=[(0, MAIN)]))
    assert text == BOTH


def test_others_that_come_after_the_main_thread_are_waited_for():
    text, _ = asyncio.run(looked(at_main=[(0, MAIN), (0.1, OTHERS)]))
    assert text == (MAIN + OTHERS[:-1]).decode()


def test_of_a_rank_that_holds_the_interpreter_the_main_thread_is_told():
    text, _ = asyncio.run(looked(at_main=[(0, MAIN)]))
    assert text == MAIN.decode()


def test_a_rank_that_is_stopped_while_it_writes_is_waited_for():
    parts = [(0, MAIN[:40]), (0.5, MAIN[40:])]
    text, _ = asyncio.run(looked(at_others=[(0, OTHERS)], at_main=parts))
    assert text == BOTH


def test_many_frames_are_over_with_the_last_that_is_told(monkeypatch):
    assert asyncio.run(looked())[0] == ""
    for silence in ("_SILENCE", "_PATIENCE"):
        monkeypatch.setattr(stack_pipe, silence, 3600)
    text, _ = asyncio.run(looked(at_others=[(0, OTHERS)], at_main=[(0, DEEP)]))
    assert text == (OTHERS[:-1] + DEEP).decode()
