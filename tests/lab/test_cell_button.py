"""The button of a cell that puts the line of `%%sky_remote` in, and takes it out."""

from __future__ import annotations

from lab import cell_tools

TEXTS = ["x = 1", "", "\n  x\n\n", "%%time\nx", "# %%sky_remote\nx", "%%sky_remotely\nx", "é\t'"]


def test_the_button_of_a_cell_puts_the_line_in_and_takes_it_out(notebook):
    for text in TEXTS:
        cell_tools.put_in_and_take_out(notebook, text)
    cell_tools.take_out_and_put_back(notebook)
    assert not notebook.console_errors
