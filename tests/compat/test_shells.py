"""What IPython, its widgets, tqdm and Python do with the names that are used of them."""

import subprocess
import sys
import weakref
from types import SimpleNamespace

import pytest
from later import needs

from skyward_nb.compat import ipython_private, python_private


def test_ipython_numbers_cells_by_their_files():
    from IPython.core.compilerop import CachingCompiler

    shell = SimpleNamespace(compile=CachingCompiler())
    name = shell.compile.cache("x = 1\n", 7, "x = 1\n")
    assert ipython_private.cell_number(shell, name) == 7
    assert ipython_private.cell_number(shell, "another") is None
    ipython_private.learn_cell(shell, "another", 8)
    assert shell.compile.format_code_name("another") == ("Cell", "In[8]")


def test_ipython_prints_by_repr_what_it_has_no_way_for():
    from IPython.lib.pretty import RepresentationPrinter

    printers = RepresentationPrinter(None).type_pprinters
    assert printers[int] is ipython_private.print_by_repr()
    assert printers[list] is not ipython_private.print_by_repr()


def test_ipython_renders_in_a_theme():
    from IPython.core.ultratb import SyntaxTB

    assert ipython_private.theme_of(SyntaxTB(theme_name="nocolor")) == "nocolor"


@needs("ipywidgets")
def test_a_widget_is_shown_by_its_bundle():
    import ipywidgets

    from skyward_nb.compat.ipywidgets_private import bundle_of

    widget = ipywidgets.HTML("text")
    try:
        assert "application/vnd.jupyter.widget-view+json" in bundle_of(widget)
    finally:
        for each in (widget, widget.layout, widget.style):
            each.close()


@needs("ipykernel")
def test_a_kernel_has_no_word_of_its_end_before_that():
    from ipykernel.kernelbase import Kernel

    from skyward_nb.compat.ipykernel_private import shutdown_reply

    assert vars(Kernel)["_shutdown_message"] is None
    assert shutdown_reply(SimpleNamespace(_shutdown_message={"content": {}})) == {"content": {}}
    assert shutdown_reply(None) is None


@needs("tqdm")
def test_tqdm_has_the_stream_that_it_wraps():
    from tqdm.utils import ObjectWrapper

    from skyward_nb.compat.tqdm_private import unwrapped

    assert unwrapped(ObjectWrapper(ObjectWrapper(sys.stdout))) is sys.stdout
    assert unwrapped(sys.stderr) is sys.stderr


_EXECUTORS = """
from concurrent.futures import ThreadPoolExecutor
import threading
from skyward_nb.compat.python_private import end_executor_threads
end_executor_threads()
done = ThreadPoolExecutor(2).submit(lambda: 1)
assert done.result() == 1
end_executor_threads()
assert threading.active_count() == 1, threading.enumerate()
with ThreadPoolExecutor(1) as another:
    assert another.submit(lambda: 2).result() == 2
"""


def test_python_ends_threads_of_executors_and_others_may_begin():
    subprocess.run([sys.executable, "-c", _EXECUTORS], check=True, timeout=60)


@pytest.mark.parametrize("name", ["_python_exit", "_shutdown"])
def test_python_has(name):
    import concurrent.futures.thread as module

    what = f"Python {sys.version.split()[0]} has no {module.__name__}.{name} any more"
    assert hasattr(module, name), f"{what}: used by compat/python_private.py for scripts that end"


def test_python_lists_finalizers_in_their_order():
    class Thing:
        pass

    things = [Thing(), Thing()]
    made = [weakref.finalize(each, print, n) for n, each in enumerate(things)]
    assert [each for each in python_private.finalizers() if each in made] == made
    made[0].detach()
    assert [each for each in python_private.finalizers() if each in made] == made[1:]
    made[1].detach()
