"""The options of a run as one value."""

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import parse
from skyward_nb.protocol.message_parts import RunCard


def test_what_another_client_is_told_of_a_run_is_read_back():
    options = parse(
        "out=x pull=a,b gather=head stdout=0 stderr=none limit=2kB timeout=5s on_error=wait"
    ).cell
    assert CellOptions.of_card(options.card()) == options
    assert options.card().gather == "head"
    assert CellOptions.of({"as": "y"}) == CellOptions(target="y")


def test_of_a_host_that_is_not_trusted_plain_names_alone_are_bound():
    card = RunCard(out="__builtins__", pull=("loss", "__builtins__", "a.b"))
    found = CellOptions.of_card(card, only_values=True)
    assert (found.out, found.pull) == ("", ("loss",))
    assert CellOptions.of_card(RunCard(out="loss"), only_values=True).out == "loss"
