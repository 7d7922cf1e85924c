"""`RankResults`: how the values of ranks are found, and shown however large they are."""

import collections
import dataclasses
import re
import sys

import pytest

from skyward_nb.reports.results import RankResults, UnreturnedValue, why_it_stays


class Huge:
    """Something that prints a line for each of its rows."""

    def __init__(self, rows=5_000_000):
        self.rows = rows

    def __repr__(self):
        return "a row\n" * self.rows


def shown(value):
    """How one value is shown, without its rank."""
    text = repr(RankResults({0: value}))
    assert text.startswith("[0] ")
    return text[4:].replace("\n    ", "\n")


def calls_while(action):
    """How many functions of Python and C were called: a measure that no other process changes."""
    count = 0

    def see(_frame, event, _arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Named:
    """A dataclass."""

    name: str
    size: int = 3


@pytest.mark.parametrize(
    "value",
    [
        1, 2.5, None, "text", b"bytes", True, [1, "a", None], (1,), {}, {"b": 1, "a": [2]}, {3, 1, 2},
        frozenset("a"), Point(1, 2), Named("a"), [Named("a")] * 3, range(5), int, len,
        collections.deque([1]), collections.Counter("aab"), collections.defaultdict(list, {1: [2]}),
        ValueError("x"), slice(1), {"k": Point(1, [2])}, [[], [[]]],
    ],
)  # fmt: skip
def test_what_is_of_ordinary_size_is_shown_as_in_ipython(value):
    from IPython.lib.pretty import pretty

    assert shown(value) == pretty(value, max_width=100)


def test_a_repr_of_many_lines_is_cut_and_the_rest_counted():
    lines = shown(Huge(30)).split("\n")
    assert lines == ["a row"] * 12 + ["… 18 more lines"]
    assert shown(Huge(12)).rstrip("\n").split("\n") == ["a row"] * 12


@pytest.mark.parametrize(
    "made",
    [
        lambda: Huge(),
        lambda: [Huge()],
        lambda: {"a": [1, Huge()]},
        lambda: "x" * 50_000_000,
        lambda: b"x" * 50_000_000,
        lambda: list(range(1_000_000)),
        lambda: dict.fromkeys(range(400_000)),
        lambda: set(range(400_000)),
        lambda: [[[[list(range(50))] * 50] * 50] * 50] * 50,
        lambda: {"rows": ["x" * 1000] * 100_000},
    ],
    ids=[
        "a row",
        "in a list",
        "in a dict",
        "str",
        "bytes",
        "list",
        "dict",
        "set",
        "lists",
        "texts",
    ],
)
def test_however_large_it_costs_little_and_is_short(made):
    results = RankResults(dict.fromkeys(range(4), made()))
    assert calls_while(lambda: repr(results)) < 1_000_000
    text = repr(results)
    assert text.startswith("[0-3] ")
    assert len(text) < 10_000
    assert text.count("\n") <= 12


def test_of_what_is_in_a_container_the_rest_is_counted_too():
    assert shown([Huge(30)]).split("\n")[-1] == " … 24 more lines]"


def test_long_containers_show_their_first_items():
    assert shown(list(range(1000))) == "[0, 1, 2, 3, 4, 5, ...]"
    assert shown(dict.fromkeys(range(9), "y" * 30)).endswith("yyy', ...}")
    assert "… 800 more characters" in shown(["x" * 1000] * 2)


def test_long_texts_say_how_much_is_left_out():
    assert shown("x" * 5000) == f"{'x' * 4000!r} … 1,000 more characters"
    many = shown(Huge(3).__repr__() + "y" * 5000)
    assert many.endswith("more characters")


class Rows:
    """Prints itself in IPython's way, without an end."""

    def _repr_pretty_(self, printer, _cycle):
        while True:
            printer.text("row")
            printer.break_()


def test_what_prints_without_an_end_is_stopped():
    lines = shown(Rows()).split("\n")
    assert lines[:12] == ["row"] * 12
    assert lines[12].endswith("more lines at least")


class Broken:
    """Has no repr to speak of."""

    def __repr__(self):
        raise ValueError


def test_a_broken_repr_does_not_hide_the_others():
    assert (
        repr(RankResults({0: Broken(), 1: 2})) == "[0] <Broken, its repr raises ValueError>\n[1] 2"
    )
    assert shown([Broken()]) == "<list, its repr raises ValueError>"


def test_cycles_are_shown():
    loop = [1]
    loop.append(loop)
    assert shown(loop) == "[1, [...]]"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("the run's value: a lock is of one process\nAdvice.", "a lock is of one process"),
        ("the run's value: 3 GB are too much", "3 GB are too much"),
        ("it cannot be rebuilt in the notebook: ValueError: Default process group has not been initialized, please",
         "it belongs to their process group, in which the notebook is not"),
    ],
)  # fmt: skip
def test_why_a_value_stays_is_said_in_one_line(reason, said):
    assert why_it_stays(reason) == f"the run's value stays on the ranks: {said}"


class Table:
    """Has HTML of its own, as a DataFrame has."""

    def __init__(self, html):
        self.html = html

    def __repr__(self):
        return "Table <in words>"

    def _repr_html_(self):
        if isinstance(self.html, Exception):
            raise self.html
        return self.html


def test_values_with_html_of_their_own_are_shown_by_it():
    assert RankResults({0: 1, 1: "<b>"})._repr_html_() is None
    assert (
        RankResults({0: Table(None), 1: Table(ValueError()), 2: UnreturnedValue()})._repr_html_()
        is None
    )
    table = "<table><tr><td>1</td></tr></table>"
    html = RankResults(
        {0: Table(table), 1: Table(table), 2: "<b>", 3: Table("</div>")}
    )._repr_html_()
    assert html.count(table) == 1
    assert "<div>[0-1]</div><table>" in html
    assert re.search(r"<div>\[2\]</div><pre[^>]*>&#x27;&lt;b&gt;&#x27;</pre>", html)
    assert "srcdoc=" in html.partition("[3]")[2]  # what might leave its element has a frame
    alone = RankResults({3: Table(table)})._repr_html_()
    assert "grid" not in alone
    assert "[3]" in alone


def test_html_of_values_is_bounded():
    results = RankResults({rank: Table(f"<i>{rank}</i>" + "x" * 200_000) for rank in range(8)})
    html = results._repr_html_()
    assert len(html) < 600_000
    assert html.count("Table &lt;in words&gt;") == 6
    assert RankResults({0: Table("x" * 600_000)})._repr_html_() is None


def test_values_of_each_node():
    results = RankResults({0: "a", 1: "b", 2: "c"}, {0: 0, 1: 0, 2: 1})
    nodes = results.by_node()
    assert [*nodes] == [0, 1] and [*nodes[0]] == ["a", "b"] and nodes[1].head == "c"
    assert results[1:].by_node()[0].ranks == (1,), "the numbers of ranks stay"
