"""Loops of packages, told as to a pool."""

import sys

import pytest

from skyward_nb.runtime import event_sink, hooks


@pytest.fixture(autouse=True)
def before_any_run():
    """What a test says is of the run that was begun last in this process, be it in another test."""
    event_sink.begin(0)


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
        try:
            return (yield)
        finally:
            close_bars()


def close_bars():
    """One that is left would tell of its end when the collector of garbage finds it, in another test."""
    if (tqdm := sys.modules.get("tqdm")) is not None:
        for bar in list(tqdm.tqdm._instances):
            bar.close()
