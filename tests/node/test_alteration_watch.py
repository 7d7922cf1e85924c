"""Containers that a cell changed in place, and those that it left alone."""

from collections import deque

import pytest

from skyward_nb.node.alteration_watch import altered, prints_of


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1], lambda each: each.append(2)),
        ([2, 1], list.sort),
        ({"a": [1]}, lambda each: each["a"].append(2)),
        (deque([1], 1), lambda each: each.append(2)),
        (list(range(200_000)), list.pop),
        ([open], lambda each: each.append(lambda: 0)),
    ],
)
def test_what_changed_is_named_and_what_did_not_is_not(value, change):
    namespace = {"x": value, "y": [1], "z": "text"}
    before = prints_of(("x", "y", "z", "nowhere"), namespace)
    assert altered(before, namespace) == ()
    change(value)
    assert altered(before, namespace) == ("x",)
    del namespace["x"]
    assert altered(before, namespace) == ()
