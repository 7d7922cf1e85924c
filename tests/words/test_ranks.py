"""Sets of ranks as people write them."""

import pytest

from skyward_nb.words.errors import OptionError
from skyward_nb.words.ranks import count_ranks, parse_ranks, ranks_by, shown_ranks, spell_ranks


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("all", (0, 1, 2, 3)),
        ("head", (0,)),
        ("2", (2,)),
        ("0,2-3", (0, 2, 3)),
        ("3,0", (0, 3)),
        ("::2", (0, 2)),
        ("1:", (1, 2, 3)),
        (":-1", (0, 1, 2)),
    ],
)
def test_written(text, ranks):
    assert parse_ranks("ranks", text, 4) == ranks


@pytest.mark.parametrize("text", ["4", "0-7", "two", "1-", "-1", "", "9:", "0,,1", "::0"])
def test_wrong(text):
    with pytest.raises(OptionError, match="ranks="):
        parse_ranks("ranks", text, 4)


@pytest.mark.parametrize(
    ("ranks", "text"), [([0, 1, 2, 3], "0-3"), ([5, 0, 1], "0-1,5"), ([], ""), ([7], "7")]
)
def test_spelt(ranks, text):
    assert spell_ranks(ranks) == text


def test_in_a_sentence():
    assert count_ranks([2]) == "rank 2"
    assert count_ranks(iter([0, 1])) == "ranks 0-1"


@pytest.mark.parametrize(
    ("text", "ranks"), [("none", set()), ("all", {0, 1, 2, 3}), ("head", {0}), ("1-2", {1, 2})]
)
def test_ranks_whose_output_is_shown(text, ranks):
    assert shown_ranks("stdout", text, 4) == ranks


def test_ranks_that_have_something_in_common():
    assert list(ranks_by({3: "b", 2: "a", 0: "b"}).items()) == [("b", [0, 3]), ("a", [2])]
