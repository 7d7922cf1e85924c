"""Words of other tools: taken where they mean just an option, or answered with the right word."""

import pytest

from skyward_nb.options.option_help import VERBS, help_text, unknown_verb
from skyward_nb.options.option_line import parse, parse_settings, parse_verb, split_off
from skyward_nb.options.option_table import BY_NAME, NAMES_A_POOL
from skyward_nb.options.synonyms import (
    ALIASES,
    OPTION_HINTS,
    VERB_ALIASES,
    VERB_HINTS,
    asks_for_help,
)
from skyward_nb.words.errors import OptionError


@pytest.mark.parametrize(
    "line",
    [
        "nodes=2",
        "-n 2",
        "-n=2",
        "--nnodes 2",
        "num_nodes=2",
        "--num-nodes 2",
        "nodes = 2",
        "nodes= 2",
        "nodes =2",
        "--nodes = 2",
    ],
)
def test_ways_to_write_the_number_of_nodes(line):
    asked = parse(f"quiet {line} out=x")
    assert (asked.pool.nodes, asked.cell.quiet, asked.cell.out) == (2, True, "x")


def test_spaces_around_an_equals_sign_join_no_other_words():
    assert parse("env = K=V nodes= 2").pool.env == {"K": "V"}
    assert parse_settings("nodes= idle=5m") == {"nodes": "", "idle": "5m"}
    with pytest.raises(OptionError, match="nodes= has no value"):
        parse("nodes= quiet")


def test_a_script_after_the_words_of_others():
    assert split_off(["-n", "2", "main.py", "-n", "3"]) == (["-n", "2"], ["main.py", "-n", "3"])


def test_no_accelerator_and_one_without_a_name():
    assert parse("accelerator=cpu").pool.accelerator is None
    with pytest.raises(OptionError, match=r"which one.*accelerator=A100"):
        parse("accelerator=gpu:2")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gpus=2", "accelerator=A100:2"),
        ("workers=4", "nodes=4 makes four ranks"),
        ("name=class", "pool=NAME"),
        ("cores=2", "cpu_limit=2 limits each rank"),
        ("mem_limit=2GB", "memory_limit=2GB limits each rank"),
        ("device=cpu", "accelerator=none"),
    ],
)
def test_a_word_that_means_something_else_here_is_answered_with_it(line, says):
    with pytest.raises(OptionError, match=f"there is no option.*{says}"):
        parse(line)


def test_words_of_others_are_none_of_ours_and_name_what_there_is():
    assert not {*BY_NAME} & {*OPTION_HINTS, *ALIASES}
    assert not {*VERBS} & {*VERB_HINTS, *VERB_ALIASES}
    assert {*ALIASES.values()} <= {*BY_NAME}
    assert {*VERB_ALIASES.values()} <= {*VERBS}


def test_verbs_of_others():
    assert help_text("ls") == help_text("status")
    assert "%sky down takes a pool down" in unknown_verb("kill")
    assert "nodes=4 replace" in unknown_verb("scale")


@pytest.mark.parametrize("verb", NAMES_A_POOL)
def test_a_verb_about_a_pool_takes_its_name_alone(verb):
    assert parse_verb(verb, "class").pool.name == parse_verb(verb, "pool=class").pool.name
    assert not parse_verb(verb, "class").rest
    with pytest.raises(OptionError, match="twice"):
        parse_verb(verb, "class pool=other")


def test_words_beside_the_name_of_a_pool():
    assert parse_verb("down", "all").rest == ("all",)
    asked = parse_verb("attach", "class detach")
    assert (asked.pool.name, asked.cell.detach) == ("class", True)
    assert parse_verb("attach", "detach").pool.name is None
    with pytest.raises(OptionError, match="no option"):
        parse_verb("down", "one two")
    for word in ("all", "now"):  # then `down all` would end it, and others with it
        with pytest.raises(OptionError, match="give it another name"):
            parse_verb("status", f"pool={word}")


@pytest.mark.parametrize("line", ["--help", "-h", "nodes=2 --help"])
def test_a_line_may_ask_how_it_is_written(line):
    assert asks_for_help(line)
    assert not asks_for_help("out=help")
