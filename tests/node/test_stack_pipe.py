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
    return await looked_again([at_others], [at_main])


async def looked_again(at_others, at_main) -> tuple[str, list[str]]:
    """The same where each may be asked several times."""
    loop = asyncio.get_running_loop()
    pipe, steps = StackPipe(loop), []
    write = pipe.open()

    def asked(step, texts):
        steps.append(step)
        for later, text in texts:
            loop.call_later(later, os.write, write, text)

    answered = loop.create_future()
    others, main = iter(at_others), iter(at_main)
    pipe.ask(
        lambda: asked("others", next(others)),
        lambda: asked("main", next(main)),
        answered.set_result,
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


@pytest.mark.parametrize(
    "parts",
    [
        (OTHERS[:20], MAIN[:50], OTHERS[20:], MAIN[50:]),
        (MAIN[:50], OTHERS[:20], MAIN[50:], OTHERS[20:]),
        (OTHERS[:50], MAIN, OTHERS[50:]),
        (MAIN[:50], OTHERS, MAIN[50:]),
        (MAIN[:-9], OTHERS[:50], MAIN[-9:], OTHERS[50:]),
    ],
    ids=["others first", "main first", "main within", "others within", "at the end"],
)
def test_of_a_rank_that_is_held_up_as_it_is_asked_both_are_asked_once_more(parts):
    """The main thread was signalled by the time that it goes on, and both write at once."""
    told = [[], [(0, OTHERS)]], [[(0, b"".join(parts))], [(0, MAIN)]]
    text, steps = asyncio.run(looked_again(*told))
    assert text == BOTH and steps == ["others", "main"] * 2


def test_whatever_comes_the_second_time_is_the_answer():
    torn = MAIN[:50] + OTHERS + MAIN[50:]
    text, steps = asyncio.run(looked_again([[], []], [[(0, torn)]] * 2))
    assert text == torn.replace(OTHERS_END, b"").decode() and len(steps) == 4


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


CRASH = (
    b"Fatal Python error: Aborted\n\nCurrent thread 0x2 (most recent call first):\n"
    b'  File "b.py", line 3 in main\n  File "<frozen runpy>", line 198 in _run_module_as_main\n'
)


@pytest.mark.parametrize(
    ("at_others", "at_main"),
    [(OTHERS + MAIN + CRASH, b""), (OTHERS[:30] + CRASH, b""), (OTHERS, MAIN[:60] + CRASH)],
    ids=["after its stack", "before the others are told", "within its stack"],
)
def test_a_rank_that_crashes_while_it_is_asked_has_said_where(at_others, at_main):
    async def scene():
        pipe, answers = StackPipe(asyncio.get_running_loop()), []
        write = pipe.open()
        pipe.ask(
            lambda: os.write(write, at_others), lambda: os.write(write, at_main), answers.append
        )
        await asyncio.sleep(0.05)
        os.close(write)
        found = pipe.crash()
        pipe.close()
        assert len(answers) == 1
        return found

    assert asyncio.run(scene()) == CRASH.decode()


def test_a_rank_that_has_crashed_is_asked_in_vain():
    async def scene():
        pipe = StackPipe(asyncio.get_running_loop())
        write = pipe.open()
        os.write(write, CRASH)
        while not pipe._said:  # noqa: ASYNC110 - there is no event for that
            await asyncio.sleep(0)
        pipe.ask(lambda: None, lambda: None, lambda _: None)
        found = pipe.crash()
        pipe.close()
        os.close(write)
        return found

    assert asyncio.run(scene()) == CRASH.decode()
