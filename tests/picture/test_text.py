"""A view as plain text, in full and the last of it."""

from types import SimpleNamespace

import pytest

from skyward_nb.picture.text import as_text
from skyward_nb.protocol.events import Display, Output
from skyward_nb.show.canvas import bundle
from skyward_nb.show.canvas_choice import draw_once
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import RankView, RunView

LOGS = "%sky logs run=7"


def shown(most, *events, **about):
    """The lines of output in a text of so many characters, under the headline and the row of ranks."""
    view = fold(RunView(logs=LOGS, ranks={0: RankView(), 1: RankView()}, **about), *events)
    rows = len(as_text(RunView(ranks=view.ranks)).splitlines())
    return as_text(view, most=most).splitlines()[rows:]


def printed(*lines, ranks=(0,)):
    return [Output(rank, "stdout", f"{line}\n") for line in lines for rank in ranks]


def displayed(text):
    return Display(0, {"text/plain": text})


@pytest.mark.parametrize(
    ("most", "events", "lines"),
    [
        (100, printed("a", "b"), ["[0] a", "[0] b"]),
        (13, printed("a", "b", "c"), [f"… 1 earlier line is not in this text; {LOGS} prints it …", "[0] b", "[0] c"]),
        # Lines of two ranks count twice, as in the logs.
        (
            13, printed("a", ranks=(0, 1)) + printed("b", "c"),
            [f"… 2 earlier lines are not in this text; {LOGS} prints all of them …", "[0] b", "[0] c"],
        ),
        # The last is there, if it is too long its end, and an object has its last lines.
        (8, printed("a", "0123456789"), [f"… 1 earlier line is not in this text; {LOGS} prints it …", "[0] … 23456789"]),
        (
            8, [*printed("hi"), displayed("x" * 99 + "0123456789")],
            [f"… 1 earlier line is not in this text; {LOGS} prints it …", "[0] … 23456789"],
        ),
        (17, [displayed("first line\nsecond\nthird"), *printed("a")], ["[0] …", "third", "[0] a"]),
        (
            7, [*printed("b"), displayed("too long"), *printed("a")],
            [f"… 1 earlier line and 1 displayed object are not in this text; {LOGS} prints all of them …", "[0] a"],
        ),
    ],
)  # fmt: skip
def test_the_last_of_the_output_and_how_much_is_before_it(most, events, lines):
    assert shown(most, *events) == lines


def test_lines_that_are_left_out_of_the_view_are_counted_once():
    events = printed(*(f"{n:020}" for n in range(100)))
    whole = shown(10_000, *events, most_text=800)
    (at,) = [n for n, line in enumerate(whole) if "not shown" in line]
    cut = int(whole[at].split()[1])
    assert len(whole) - 1 + cut == 100
    # The border is among the last lines, or before them.
    with_border = shown(sum(len(line) + 1 for line in whole[at - 1 :]), *events, most_text=800)
    assert (
        with_border[0].startswith(f"… {at - 1} earlier lines are") and with_border[2] == whole[at]
    )
    without = shown(sum(len(line) + 1 for line in whole[-3:]), *events, most_text=800)
    assert without[0].startswith("… 97 earlier lines are") and without[1:] == whole[-3:]


def test_a_terminal_gets_all_of_a_view_and_the_last_of_what_was_kept(capsys):
    view = fold(RunView(most_text=1 << 20), *printed(*(f"line {n}" for n in range(5000))))
    terminal = SimpleNamespace(kernel=None)
    draw_once(terminal, view)
    assert "[0] line 0\n" in (whole := capsys.readouterr().out)
    assert "not in this text" not in whole
    draw_once(terminal, bundle(view))
    last = capsys.readouterr().out
    assert last.endswith("[0] line 4999\n") and "earlier lines are not in this text" in last
    assert len(last) < 10_200
