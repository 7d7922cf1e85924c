"""Which names a cell may change in place, by its text."""

import ast

import pytest

from skyward_nb.cell.alterations import altered_names


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("lst.append(1)", {"lst"}),
        ("for x in y:\n    found.add(x)", {"found"}),
        ("d['a'] = 1", {"d"}),
        ("d['a'] += 1", {"d"}),
        ("d['a'].b.append(1)", {"d"}),
        ("del d['a']", {"d"}),
        ("d['a'], e = 1, 2", {"d"}),
        ("def f():\n    lst.extend(x)", {"lst"}),
        ("x = d['a'] == 1", set()),
        ("del lst", set()),
        ("x = lst[0]\nlst.count(1)\nmodel.train()", set()),
        ("make().append(1)", set()),
    ],
)
def test_methods_and_items_that_change_what_a_name_stands_for(code, names):
    assert altered_names(ast.parse(code), code) == names
