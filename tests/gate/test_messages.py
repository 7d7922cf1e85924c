"""`make messages` finds what a person may read, and nothing else."""

from __future__ import annotations

import pytest
from messages import messages, messages_of

pytestmark = pytest.mark.usefixtures("no_collector")

MODULE = '''"""A docstring is no message."""

class Case:
    reason = "what it is"
    """Nor is this one."""

def f(x, pool):
    pattern = re.compile("two words")
    if x is None:
        raise OptionError("ranks", f"ranks={x}: write " + x)
    display.end(f"{x} are done")
    say("word")
    return "set -e; exit"
'''


def test_messages_of_a_module_in_its_order():
    assert [(each.line, each.shown_by, each.text) for each in messages_of(MODULE, "f.py")] == [
        (4, "Case", "what it is"),
        (10, "raise OptionError", "ranks={x}: write {x}"),
        (11, "end", "{x} are done"),
    ]


@pytest.fixture(scope="module")
def found():
    return list(messages())


@pytest.mark.parametrize(
    ("shown_by", "words"),
    [
        ("raise TypeError", "@sky.function takes a function, not"),
        ("print", "no pool is up"),
        ("Command", "run a script on every rank of a pool"),
    ],
)
def test_messages_of_the_package_with_their_places(found, shown_by, words):
    said = [each for each in found if each.shown_by == shown_by and words in each.text]
    assert said
    assert str(said[0]).startswith(f"{said[0].file}:{said[0].line}  [{shown_by}]  ")
