"""Names of a rank, and what a run changed of them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from skyward_nb.node import rank_namespace
from skyward_nb.node.rank_namespace import RankNamespace
from skyward_nb.protocol.commands import Run


@pytest.fixture
def namespace(monkeypatch):
    """The names of a rank, whose process this is not."""
    monkeypatch.setattr(rank_namespace, "set_home", lambda _: None)
    monkeypatch.setattr(rank_namespace.checkpoint, "connect", lambda _: None)
    shell = SimpleNamespace(user_ns={"json": json, "kept": json, "x": 1}, user_ns_hidden={})
    return RankNamespace(0, shell, None)


@pytest.mark.parametrize("is_opaque", [True, False])
def test_modules_that_a_cell_removed_unseen_are_told_and_new_ones_are_not(namespace, is_opaque):
    space = namespace._shell.user_ns
    command = Run(run=1, generation=1, ranks=(0,), number=3, opaque=is_opaque)
    before = namespace.watch(command)
    del space["json"], space["x"]
    space.update(kept=pytest, new=pytest)
    assigned, gone = namespace.changes(command, before, failed=False)
    assert (assigned, set(gone)) == ((), {"json", "x"} if is_opaque else set())
