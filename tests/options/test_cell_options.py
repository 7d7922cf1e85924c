"""The options of a run as one value."""

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import parse


def test_what_another_client_is_told_of_a_run_is_read_back():
    options = parse(
        "out=x pull=a,b gather=head stdout=0 stderr=none limit=2kB timeout=5s on_error=wait"
    ).cell
    assert CellOptions.of_card(options.card()) == options
    assert options.card().gather == "head"
    assert CellOptions.of({"as": "y"}) == CellOptions(target="y")
