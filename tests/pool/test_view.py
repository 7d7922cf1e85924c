"""The view: folded from events, bounded, and what a terminal would show."""

from functools import reduce

import pytest

from skyward_nb.pool.view import HEAD, TAIL, Line, Shown, View, fold, open_lines
from skyward_nb.words.messages import (
    Clear,
    Display,
    Metric,
    Output,
    Progress,
    RankDone,
    RankLost,
)


def folded(*events):
    return reduce(fold, events, View())


def folded_on(view, *events):
    return reduce(fold, events, view)


def out(rank, text, stream="stdout"):
    return Output(rank, stream, text)


def lines(view):
    return [(entry.ranks, entry.text) for entry in view.entries if isinstance(entry, Line)]


def test_equal_lines_of_several_ranks_are_one():
    view = folded(*(out(rank, "a\nb\n") for rank in (2, 0, 1)))
    assert lines(view) == [((0, 1, 2), "a"), ((0, 1, 2), "b")]


def test_every_rank_keeps_its_order():
    view = folded(out(0, "a\nb\n"), out(1, "b\na\n"))
    for rank in (0, 1):
        own = [text for ranks, text in lines(view) if rank in ranks]
        assert own == [["a", "b"], ["b", "a"]][rank]


def test_a_rank_repeating_itself_is_counted_each_time():
    assert lines(folded(out(0, "x\nx\n"))) == [((0,), "x"), ((0,), "x")]


def test_streams_do_not_mix():
    view = folded(out(0, "x\n"), out(1, "x\n", "stderr"))
    assert [entry.stream for entry in view.entries] == ["stdout", "stderr"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10%\r20%\r30%\n", "30%"),
        ("windows\r\n", "windows"),
        ("\x1b[31mred\x1b[0m\n", "red"),
        ("abc\b\bX\n", "aXc"),
        ("abcdef\rXY\n", "XYcdef"),
        ("bell\x07\n", "bell"),
        ("tab\tkept\n", "tab\tkept"),
    ],
)
def test_control_characters_act_as_in_a_terminal(text, shown):
    assert lines(folded(out(0, text))) == [((0,), shown)]


def test_a_line_in_pieces_is_one_line():
    view = folded(out(0, "ab"), out(0, "c"))
    assert view.entries == ()
    assert open_lines(view) == [Line((0,), "stdout", "abc")]
    assert lines(fold(view, out(0, "d\n"))) == [((0,), "abcd")]


def test_a_bar_in_pieces_stays_short():
    view = folded(*(out(0, f"\r{i}%") for i in range(1000)))
    assert open_lines(view) == [Line((0,), "stdout", "999%")]
    assert len(view.partial["0 stdout"]) < 20


def test_a_bar_typed_over_in_pieces_is_as_in_a_terminal():
    view = folded(out(0, "abcdef"), out(0, "\rXY"), out(0, "Z"))
    assert open_lines(view) == [Line((0,), "stdout", "XYZdef")]


def test_a_long_line_in_pieces_is_cut_with_a_true_count():
    view = folded(*(out(0, "x" * 10_000) for _ in range(10)), out(0, "\n"))
    assert "98,000 more characters" in view.entries[0].text
    assert view.overflow == {}


def test_the_gap_stands_where_lines_were_left_out():
    view = folded(out(0, "".join(f"a{i}\n" for i in range(100))))
    view = fold(view, out(0, "".join(f"b{i}\n" for i in range(1000))))
    kept = [text for _, text in lines(view)]
    assert kept[view.gap - 1] == f"b{HEAD - 1}"
    assert kept[view.gap] == f"b{1000 - TAIL}"
    assert len(kept) + view.cut == 1100


def test_ranks_fold_again_after_a_cut():
    many = "".join(f"{i}\n" for i in range(5000))
    view = folded(*(out(rank, many) for rank in (0, 1)))
    view = folded_on(view, out(0, "the end\n"), out(1, "the end\n"))
    assert view.entries[-1] == Line((0, 1), "stdout", "the end")


def test_a_line_left_open_is_ended_with_the_rank():
    view = folded(out(0, "no newline"), RankDone(run=1, rank=0))
    assert lines(view) == [((0,), "no newline")]


def test_a_million_lines_keep_head_and_tail_and_a_count():
    text = "".join(f"{i}\n" for i in range(1000))
    view = folded(*(out(0, text) for _ in range(100)))
    kept = lines(view)
    assert len(kept) + view.cut == 100_000
    assert len(kept) <= HEAD + TAIL + 200
    assert [text for _, text in kept[:3]] == ["0", "1", "2"]
    assert kept[-1][1] == "999"


def test_a_long_line_is_cut_with_a_count():
    (entry,) = folded(out(0, "x" * 1_000_000 + "\n")).entries
    assert len(entry.text) < 2100
    assert "998,000 more characters" in entry.text


def test_displays_stand_between_lines_and_are_updated_in_place():
    view = folded(
        out(0, "a\n"),
        Display(0, {"text/plain": "1"}, "id"),
        out(0, "b\n"),
        Display(0, {"text/plain": "2"}, "id", update=True),
    )
    assert [type(entry) for entry in view.entries] == [Line, Shown, Line]
    assert view.entries[1].data == {"text/plain": "2"}


def test_clear_output_is_of_one_rank():
    view = folded(out(0, "a\n"), out(1, "a\nb\n"), Clear(0), out(0, "c\n"))
    assert lines(view) == [((1,), "a"), ((1,), "b"), ((0,), "c")]


def test_clear_output_may_wait():
    view = folded(out(0, "a\n"), Clear(0, wait=True))
    assert lines(view) == [((0,), "a")]
    assert lines(fold(view, out(0, "b\n"))) == [((0,), "b")]


def test_ranks_have_bars_metrics_and_an_end():
    view = folded(
        Progress(1, 1, 3, 10), Metric(1, 4, {"loss": 0.5}), Metric(1, 5, {"acc": 0.9}),
        RankDone(run=1, rank=1), RankLost(1, 2, "killed"),
    )  # fmt: skip
    rank = view.ranks[1]
    assert (rank.bars[1].done, rank.step, rank.metrics) == (3, 5, {"loss": 0.5, "acc": 0.9})
    assert (rank.state, view.ranks[2].state) == ("done", "lost")


def test_folding_changes_no_view():
    before = folded(out(0, "a\n"))
    fold(before, out(1, "a\n"))
    assert lines(before) == [((0,), "a")]
