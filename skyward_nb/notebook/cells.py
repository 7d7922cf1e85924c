"""The cells of a notebook as IPython knows them: the one that runs, compiled; the text of others."""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
import warnings
from collections.abc import Iterator
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

from skyward_nb.cell.source import Cell, compile_cell
from skyward_nb.compat.ipython_private import cell_number, learn_cell
from skyward_nb.notebook.lone_help import lone_help_has_a_body
from skyward_nb.protocol.commands import SourceFile
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.reports.rank_failures import show
from skyward_nb.reports.source_lines import cell_source

_CELL_FILE = re.compile(r"/.*/ipykernel_\d+/\d+\.py|<ipython-input-\d+-[0-9a-f]+>")
_PARSE = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def _transforms(manager: TransformerManager) -> tuple[int, ...]:
    """How many transformations of input are set up, but for ours; a user may have added some."""
    cleanup = manager.cleanup_transforms
    ours = lone_help_has_a_body in cleanup
    return len(cleanup) - ours, len(manager.line_transforms), len(manager.token_transformers)


_PLAIN = _transforms(TransformerManager())


def is_cell_file(name: str) -> bool:
    """Whether code with this file name is a cell's, as IPython and ipykernel name them."""
    return _CELL_FILE.fullmatch(name) is not None


class Cells:
    """The cells of one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def present(self) -> tuple[int, str]:
        """Number and text of the cell that is running; IPython may have counted on already."""
        manager = self.shell.history_manager
        history = manager.input_hist_raw if manager else [""]
        number = len(history) - 1
        return (number, history[number]) if number else (self.shell.execution_count, "")

    def _as_sent(self, text: str) -> str:
        """The text of the running cell with the empty lines at its end: front ends name its file by all of it."""
        kernel: Any = getattr(self.shell, "kernel", None)
        sent = kernel.get_parent().get("content", {}).get("code", text) if kernel else text
        return sent if sent.rstrip("\n") == text else text

    def _transform(self, body: str) -> str:
        """IPython's magics as Python; text that is Python already has none, and is left alone."""
        manager = self.shell.input_transformer_manager
        if _transforms(manager) == _PLAIN and not body.startswith("In "):
            with warnings.catch_warnings(), contextlib.suppress(SyntaxError):
                warnings.simplefilter("ignore")  # the real compilation tells them
                compile(body, "<cell>", "exec", _PARSE)
                return body
        return self.shell.transform_cell(body)

    def compile(self, body: str) -> Cell:
        """The cell that runs, compiled; raises SyntaxError, which shows itself."""
        shell = self.shell
        number, text = self.present()
        try:
            return compile_cell(
                text,
                body,
                transform=self._transform,
                transform_ast=shell.transform_ast,
                name_file=lambda code, text: shell.compile.cache(code, number, self._as_sent(text)),
            )
        except SyntaxError as error:
            show(error, shell.SyntaxTB.structured_traceback(type(error), error, None))
            raise

    def source_of(self, filename: str) -> SourceFile | None:
        """The text of a notebook cell by the file name its code carries."""
        return cell_source(self.shell, filename)

    def past(self) -> Iterator[str]:
        """The cells of this session as Python, the present one with them."""
        manager = self.shell.history_manager
        yield from manager.input_hist_parsed if manager else ()

    def learn(self, card: RunCard) -> None:
        """Know the text of another kernel's cell by the file name its code carries, for reports."""
        lines = card.text.splitlines(keepends=True)
        linecache.cache[card.filename] = len(card.text), None, lines, card.filename
        if cell_number(self.shell, card.filename) is None:
            learn_cell(self.shell, card.filename, card.number)
