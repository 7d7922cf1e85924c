"""Interrupts wait until code that must not be torn has returned: unit, on frames of made-up files."""

import ctypes
import importlib
import signal
import sys
import threading
import time

import pytest

from skyward_nb.node.deferred_interrupt import DeferredInterrupt, user_of

JAX = "/x/site-packages/jax/_src/sharding_impls.py"
LIBRARY = """
import time
class Context:
    def __enter__(self):
        state.append(1)
    def __exit__(self, *error):
        signal.raise_signal(signal.SIGUSR2)
        state.pop()
def collective(then=lambda: None):
    with Context():
        then()
def forever():
    signal.raise_signal(signal.SIGUSR2)
    while True: time.sleep(0.001)
"""


@pytest.fixture
def library():
    """Code as JAX's, and signals that are put off while it runs."""
    names = {"signal": signal, "state": [], "handled": []}
    exec(compile(LIBRARY, JAX, "exec"), names)
    put_off = DeferredInterrupt()

    def interrupt():
        names["handled"].append(1)
        raise KeyboardInterrupt

    def handler(_number, frame):
        if not put_off.put_off(frame, interrupt):
            interrupt()

    before = signal.signal(signal.SIGUSR2, handler), signal.signal(signal.SIGURG, handler)
    tracing = sys.gettrace()
    yield names
    put_off.forget()
    for thread in threading.enumerate():
        if thread.name == "skyward-put-off":
            thread.join(30)
    assert sys.gettrace() is tracing
    signal.signal(signal.SIGUSR2, before[0])
    signal.signal(signal.SIGURG, before[1])


def test_code_that_sets_something_back_is_not_torn(library):
    reached = []
    with pytest.raises(KeyboardInterrupt):
        for number in range(3):
            library["collective"]()
            reached.append(number)
    assert library["state"] == []
    assert reached == []


def test_an_exception_on_its_way_gives_way_to_the_interrupt(library):
    def then():
        raise RuntimeError("connection closed")

    with pytest.raises(KeyboardInterrupt):
        library["collective"](then)
    assert library["state"] == []


def test_in_code_of_the_user_it_comes_at_once(library):
    def then():
        signal.raise_signal(signal.SIGUSR2)
        raise AssertionError("too late")

    with pytest.raises(KeyboardInterrupt):
        library["collective"](then)
    assert library["state"] == []


def test_an_import_is_not_torn(library, tmp_path, monkeypatch):
    """Else the package could not be imported again: its part is there, and not as an attribute of it."""
    packages = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(packages)
    (packages / "untorn").mkdir(parents=True)
    (packages / "untorn/__init__.py").write_text("from .part import *\nname = part.__name__\n")
    comes = "import signal\nsignal.raise_signal(signal.SIGUSR2)\n"
    (packages / "untorn/part.py").write_text(comes)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("untorn")
        pytest.fail("it comes first")
    assert sys.modules["untorn"].name == "untorn.part"
    assert library["handled"] == [1]


def test_a_module_that_computes_as_it_is_imported_is_as_a_cell(library, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trains.py").write_text(
        "import builtins\nreached = []\nwhile len(reached) < 3:\n"
        "    builtins.collective()\n    reached.append(1)\n"
    )
    monkeypatch.setattr("builtins.collective", library["collective"], raising=False)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("trains")
    assert library["state"] == []
    assert library["handled"] == [1]


def test_code_that_does_not_return_is_torn_after_a_while(library):
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        library["forever"]()
    assert time.monotonic() - began > 0.3


def test_a_process_that_was_stopped_is_not_late(library):
    """No thread of it runs for a while, as it is to set something back; then it is interrupted again."""
    library["usleep"] = ctypes.PyDLL(None).usleep
    comes = "signal.raise_signal(signal.SIGUSR2)"
    source = LIBRARY.replace(comes, f"{comes}; usleep(1_000_000); {comes}", 1)
    exec(compile(source, JAX, "exec"), library)
    with pytest.raises(KeyboardInterrupt):
        library["collective"]()
        pytest.fail("it comes first")
    assert library["state"] == [] and library["handled"] == [1]


def test_one_that_comes_while_another_is_handled_tears_nothing(library, monkeypatch):
    """The agent and the control thread each send one: the second may come upon the handler of the first."""
    start = threading.Thread.start

    def interrupted(thread):
        signal.raise_signal(signal.SIGURG)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        library["collective"]()
        pytest.fail("it comes first")
    assert library["state"] == [] and library["handled"] == [1]


def test_what_is_nobodys_is_none_of_ours():
    assert user_of(None) is None
    assert user_of(sys._getframe()) is None
