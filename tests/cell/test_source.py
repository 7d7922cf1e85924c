"""Cells compiled with their lines kept true."""

import inspect

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from skyward_nb.cell.source import compile_cell


def compiled(text, body):
    return compile_cell(
        text,
        body,
        transform=TransformerManager().transform_cell,
        transform_ast=lambda tree: tree,
        name_file=lambda code, text: "cell",
    )


def lines_of(code):
    return {line for _, _, line in code.co_lines() if line}


@pytest.mark.parametrize(
    ("text", "body", "line"),
    [
        ("%%sky_remote\nx = y", "x = y\n", 2),
        ("%%sky_remote nodes=2\n\n\nx = y", "\n\nx = y\n", 4),
        ("\n%%sky_remote\nx = y", "x = y\n", 3),
        ("%%sky_remote pull=q\nq", "q\n", 2),
        ("for i in r: run_cell_magic(...)", "x = y\n", 2),
        ("%%sky_remote\n!ls\n%time f()\nx = y", "!ls\n%time f()\nx = y\n", 4),
    ],
)
def test_lines_are_those_the_person_sees(text, body, line):
    cell = compiled(text, body)
    assert max(lines_of(cell.last or cell.body)) == line


@pytest.mark.parametrize(
    ("body", "has_value"),
    [
        ("1", True), ("x = 1", False), ("1;", False), ("1;  # said", False), ("1  # not ;", True),
        ("'a;'", True), ("f()\n\n", True), ("", False), ("for i in x: i", False),
    ],
)  # fmt: skip
def test_value(body, has_value):
    assert compiled(f"%%sky_remote\n{body}", body).has_value is has_value


def test_await_makes_a_coroutine_of_the_part_that_has_it():
    cell = compiled("%%sky_remote\nx = 1\nawait f()", "x = 1\nawait f()")
    assert not cell.body.co_flags & inspect.CO_COROUTINE
    assert cell.last.co_flags & inspect.CO_COROUTINE


def test_a_syntax_error_has_the_persons_line():
    with pytest.raises(SyntaxError) as caught:
        compiled("%%sky_remote nodes=2\n\nx = (1,\ny", "\nx = (1,\ny")
    assert caught.value.lineno == 3


def test_names_come_along():
    assert compiled("%%sky_remote\ny = x", "y = x").names.reads == {"x"}


def test_magics_inside_of_magics_are_read():
    body = "%%time\n!ls {folder}\ny = x"
    names = compiled(f"%%sky_remote\n{body}", body).names
    assert {"folder", "x"} <= names.reads
    assert names.sure == {"y"}
