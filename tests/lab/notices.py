"""Lab's word at the end of a run that nobody watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace
from picture import views

from skyward_nb.picture.record import MIME
from skyward_nb.show.canvas import bundle

if TYPE_CHECKING:
    from lab.pages import NotebookPage

# A run of 24 seconds as a kernel publishes it; what it was asked for is of another process.
_ENDED = """from IPython.display import display
display({{"{mime}": {record}, "text/plain": "run"}}, raw=True)"""


@contextmanager
def told_of_an_end(notebook: NotebookPage) -> Iterator[int]:
    """A cell of a run that ended while the page was hidden, about which there is a toast until the end of the block."""
    record = bundle(replace(views.finished(), run=""))[MIME] | {"seconds": 24.0}
    cell = notebook.add_cell(_ENDED.format(mime=MIME, record=repr(record)))
    notebook.set_hidden(True)
    notebook.run_cell(cell)
    notebook.set_hidden(False)
    toast = notebook.page.locator(".Toastify__toast").filter(has_text="4 ranks finished: ")
    toast.wait_for()
    # It slides into the page.
    toast.evaluate("node => node.getAnimations().forEach(each => each.finish())")
    yield cell
    toast.get_by_role("button", name="Show").click()
