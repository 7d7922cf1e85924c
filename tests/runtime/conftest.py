"""Loops of packages, told as to a pool."""

import pytest

from skyward_nb.runtime import event_sink, hooks


@pytest.fixture
def told():
    """Events told by the test, which runs while the hooks are installed."""
    events = []
    event_sink.connect(events.append)
    yield events
    event_sink.connect(None)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Not by the fixture: the streams that a test has are not there yet when it is set up."""
    if "told" not in pyfuncitem.fixturenames:
        return (yield)
    with hooks.installed():
        return (yield)
