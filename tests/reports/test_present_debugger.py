"""The kernel's own debugger does not follow what runs a cell on ranks."""

import sys
from types import SimpleNamespace

import pytest

from skyward_nb.reports import present_debugger


@pytest.fixture
def told(monkeypatch):
    """What debugpy is told of this thread."""
    told = []
    monkeypatch.setitem(sys.modules, "debugpy", SimpleNamespace(trace_this_thread=told.append))
    yield told
    present_debugger.connect(None)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [(True, True, [False, True]), (True, False, [False]), (False, True, []), (None, None, [])],
)
def test_it_follows_again_only_if_it_is_on_before_and_after(told, before, after, says):
    bridge = None if before is None else SimpleNamespace(is_on=before)
    present_debugger.connect(bridge)

    @present_debugger.unfollowed()
    def run():
        if bridge is not None:
            bridge.is_on = after
        raise LookupError

    with pytest.raises(LookupError):
        run()
    assert told == says
