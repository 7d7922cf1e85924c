"""The table of options, and the fields that their values have."""

import dataclasses

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import LogOptions
from skyward_nb.options.option_table import OPTIONS
from skyward_nb.words.pool_options import PoolOptions


def names(scope):
    return {option.name for option in OPTIONS if option.scope == scope}


def test_a_run_has_a_field_for_each_option_of_a_cell():
    fields = {each.name for each in dataclasses.fields(CellOptions)}
    assert fields == names("cell") | {
        "target",
        "stated",
        "fetch",
        "folder",
        "cells",
        "now",
        "remove",
    }


def test_a_pool_has_a_field_for_each_of_its_options():
    assert {*PoolOptions.__struct_fields__} == names("pool") | {
        "aws",
        "slurm",
        "kubernetes",
        "ray",
        "skypilot",
        "adds_frameworks",
    }
    assert {*LogOptions.__struct_fields__} == names("verb") - {
        "as",
        "fetch",
        "folder",
        "cells",
        "now",
        "remove",
    }


def test_every_option_has_help_and_no_option_is_there_twice():
    assert all(option.help for option in OPTIONS)
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
