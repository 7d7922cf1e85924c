"""A notebook in nbclassic, driven by its own `Jupyter.notebook`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.pages import NotebookPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

_ADD = """source => {
  const notebook = Jupyter.notebook;
  notebook.insert_cell_at_bottom('code').set_text(source);
  return notebook.ncells() - 1;
}"""
_IDLE = """() => {
  const notebook = window.Jupyter?.notebook;
  return notebook?._fully_loaded && notebook.kernel?.is_connected() && !notebook.kernel_busy
    && !notebook.get_cells().some(cell => cell.element.hasClass('running'));
}"""


class ClassicPage(NotebookPage):
    """The same steps as in JupyterLab."""

    ADD = _ADD
    RUN = "index => { Jupyter.notebook.execute_cells([index]); }"
    IDLE = _IDLE
    INTERRUPT = "Jupyter.notebook.kernel.interrupt()"

    def output(self, index: int) -> Locator:
        """The output area of a cell."""
        cell = self.page.locator(".cell").nth(index)
        cell.scroll_into_view_if_needed()
        return cell.locator(".output_wrapper")

    def output_text(self, index: int) -> str:
        """What is to be read under a cell."""
        return "\n".join(
            each.inner_text() for each in self.output(index).locator(".output_subarea").all()
        )
