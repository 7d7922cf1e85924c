"""Which figures stand side by side, and between which lines."""

import pytest

from skyward_nb.picture.figure_grid import stretches
from skyward_nb.protocol.events import Display, Output
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import DisplayedObject, RunView


def laid(*words):
    """What stands where: `0` is a figure of rank 0, `0a` its line `a`; figures of a stretch are in brackets."""
    view = RunView()
    for word in words:
        rank, text = int(word[0]), word[1:]
        event = Output(rank, "stdout", f"{text}\n") if text else Display(rank, {"text/html": word})
        view = fold(view, event)
    found = []
    for stretch in stretches(view):
        found += ["".join(map(str, line.ranks)) + line.text for line in stretch.lines]
        figures = [entry for _, entry in stretch.figures]
        found += [f"[{' '.join(str(each.ranks[0]) for each in figures)}]"] if figures else []
    return " ".join(found)


@pytest.mark.parametrize(
    ("come", "stand"),
    [
        ("0 1 2", "[0 1 2]"),
        ("0a 0 0b", "0a [0] 0b"),
        # A rank prints after its figure, and others have still to show theirs: the same line is told once.
        ("0 0x 1 1x 2 2x", "[0 1 2] 012x"),
        ("0 0loss=3 1 1loss=4 2 2loss=5", "[0 1 2] 0loss=3 1loss=4 2loss=5"),
        # What a rank prints before its figure stands before it, though another rank is further.
        ("0a 0 0b 1a 1 1b", "01a [0 1] 01b"),
        ("0 0b 0c 1z 1 1b 1c", "1z [0 1] 01b 01c"),
        # Epochs: a figure and a line of each rank in turn, one of them always ahead.
        ("0 0e1 1 1e1 0 0e2 1 1e2", "[0 1] 01e1 [0 1] 01e2"),
        ("0 0e1 0 1 1e1 1", "[0 1] 01e1 [0 1]"),
        ("0 0e1 0 0e2 0 1 1e1 1", "[0 1] 01e1 [0 1] 0e2 [0]"),
        # A rank that shows nothing is not in the way, and what it prints later is not moved up.
        ("1a 0 1b 0c 1d", "1a 1b [0] 0c 1d"),
        ("0 0a 0b 1c 0d", "[0] 0a 0b 1c 0d"),
    ],
)
def test_ranks_keep_their_order_and_their_figures_stand_together(come, stand):
    assert laid(*come.split()) == stand


def test_figures_do_not_wait_for_ever_for_those_of_other_ranks():
    lines = [f"0line{n}" for n in range(60)]
    assert laid("0", *lines, "1") == " ".join(["[0]", *lines, "[1]"])
    others = [f"1line{n}" for n in range(60)]
    assert laid("0", "0a", *others, "1").startswith("[0] 0a 1line0"), "its figure comes much later"


def test_a_stretch_knows_whose_figures_it_has():
    view = fold(RunView(), *(Display(0, {"text/html": str(n)}) for n in range(50)))
    view = fold(view, *(Output(1, "stdout", f"{n}\n") for n in range(200)))
    (stretch,) = stretches(view)
    assert stretch.shown == {0}
    assert (len(stretch.lines), len(stretch.figures)) == (200, 50)


def test_lines_that_are_left_out_are_a_border():
    view = fold(RunView(most_text=100), Display(0, {"text/html": "a"}))
    view = fold(view, *(Output(0, "stdout", f"{n:030}\n") for n in range(50)))
    found = [*stretches(fold(view, Display(1, {"text/html": "b"})))]
    assert [None in stretch.lines for stretch in found].count(True) == 1
    shown = [entry for stretch in found for _, entry in stretch.figures]
    assert [type(each) for each in shown] == [DisplayedObject] * 2
