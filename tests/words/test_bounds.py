"""Texts kept to a size: the head, the tail, and how much is left out."""

from __future__ import annotations

import pytest

from skyward_nb.words.bounds import bounded, bounded_lines


def test_what_is_short_stays():
    assert bounded("short", 100) == "short"
    assert bounded("é" * 50, 100) == "é" * 50
    assert bounded_lines(["a", "b"], 100) == ("a", "b")


@pytest.mark.parametrize("letter", ["x", "é", "😀", "\ud800"])
def test_what_is_long_keeps_its_head_and_tail_and_says_how_much_is_gone(letter):
    text = "head" + letter * 30_000 + "tail"
    short = bounded(text, 1000)
    assert short.startswith("head")
    assert short.endswith("tail")
    assert "kB left out" in short
    assert len(short.encode("utf-8", "surrogatepass")) < 1100


def test_of_many_lines_the_last_are_the_last_to_go():
    lines = bounded_lines([f"line {number}" for number in range(10_000)], 1000)
    assert lines[0] == "line 0"
    assert lines[-1] == "line 9999"
    (gap,) = [at for at, line in enumerate(lines) if "left out" in line]
    assert gap < len(lines) - gap
    assert sum(map(len, lines)) < 1100


def test_each_line_is_bounded_by_itself():
    one, two = bounded_lines(["x" * 50_000, "ValueError"], 100_000, 1000)
    assert len(one) < 1100
    assert two == "ValueError"
