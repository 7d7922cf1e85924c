"""Work that several pools would do for: what one of them cannot give leads to the next."""

import pytest

from skyward_nb.reports.resource_choices import first_to_be_had
from skyward_nb.words.errors import NodesRefused, StartError


def test_what_an_engine_does_not_give_leads_to_the_next_choice():
    def run(choice):
        if choice == "A100":
            raise NodesRefused("p", "job 7 would never start: no such GPU")
        return choice

    assert first_to_be_had("task", ["A100", "L4"], run) == "L4"
    with pytest.raises(StartError, match="number 2: pool 'p' did not start: job 7"):
        first_to_be_had("task", ["A100", "A100"], run)


def test_a_script_that_fails_is_no_lack_of_machines():
    def run(choice):
        raise StartError("p", "the batch script ended with status 1")

    with pytest.raises(StartError, match="status 1"):
        first_to_be_had("task", ["A100", "L4"], run)
