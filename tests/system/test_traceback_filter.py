"""Tracebacks of a recursion, of which nobody reads a thousand frames."""

from __future__ import annotations

from traceback import extract_tb, walk_tb

import pytest

from skyward_nb.system.traceback_filter import with_words, without_repeats


def down(n):
    if n:
        down(n - 1)
    raise ValueError("deep")


def there(n):
    back(n - 1) if n else down(0)


def back(n):
    there(n - 1) if n else down(0)


def trace_of(call, n):
    with pytest.raises(ValueError, match="deep") as raised:
        call(n)
    return raised.value.__traceback__.tb_next


@pytest.mark.parametrize(
    ("n", "kept", "words"),
    [
        (1, 2, {}),
        (3, 4, {}),
        (4, 4, {3: "[Previous line repeated 1 more time]"}),
        (90, 4, {3: "[Previous line repeated 87 more times]"}),
    ],
)
def test_a_line_that_repeats(n, kept, words):
    trace, said = without_repeats(trace_of(down, n), 60)
    assert ([each.name for each in extract_tb(trace)], said) == (["down"] * kept, words)


def test_functions_that_call_one_another():
    trace, said = without_repeats(trace_of(there, 12), 8)
    names = [each.name for each in extract_tb(trace)]
    assert names == ["there", "back", "there", "back", "there", "back", "there", "down"]
    assert said == {4: "[6 more frames]"}


def test_all_that_is_left_out_is_counted():
    def twice(n):
        down(n)

    trace, said = without_repeats(trace_of(twice, 50), 4)
    assert len([*walk_tb(trace)]) == 4
    assert said == {2: "[1 more frame]", 3: "[Previous line repeated 47 more times]"}


def test_words_stand_behind_their_frame_and_after_other_exceptions():
    trace, said = without_repeats(trace_of(down, 90), 60)
    lines = [
        "---",
        "File of a cause",
        "ValueError",
        "---",
        *["\x1b[32mFile a.py"] * 4,
        "ValueError",
    ]
    whole = with_words(lines, trace, said)
    assert whole.index("[Previous line repeated 87 more times]\n") == 7
    assert [each for each in whole if each not in said[3] + "\n"] == lines
    assert with_words(lines, trace, {}) is lines


def hidden(n):
    __tracebackhide__ = True
    down(n)


@pytest.mark.parametrize("call", [there, hidden, down, lambda n: [*map(down, [n])]])
def test_words_are_in_what_ipython_shows(call):
    """It leaves out frames of its own accord, too: where it does is its affair."""
    tb = pytest.importorskip("IPython.core.ultratb").VerboseTB("nocolor")
    trace, said = without_repeats(trace_of(call, 200), 8)
    lines = tb.structured_traceback(ValueError, ValueError("deep"), trace)
    whole = with_words(lines, trace, said)
    assert said and all(f"{words}\n" in whole for words in said.values())
    assert whole[-1] == lines[-1] and len(whole) == len(lines) + len(said)
    assert with_words(["ValueError: deep"], trace, said)[-1] == "ValueError: deep"
