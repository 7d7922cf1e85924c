"""Values of cells that only IPython's history holds: large ones are kept up to so many bytes.

IPython keeps its last 1,000 outputs, whatever their size, and never forgets what it once hid (`user_ns_hidden`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NoReturn, TypeVar, cast

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from skyward_nb.notebook.run_handle import RunHandle
from skyward_nb.pickling.payload import INLINE_LIMIT
from skyward_nb.words.errors import spell_size

MOST_BYTES = 256_000_000
T = TypeVar("T")


class ReleasedValue:
    """Stands in IPython's history for a value that was let go, and says so."""

    _words: str = ""

    def __init__(self, number: int, size: int) -> None:
        self._words = (
            f"the value of cell {number} ({spell_size(size)}) was dropped: the notebook keeps at most "
            f"{spell_size(MOST_BYTES)} of values without a name. out=NAME on a cell's line gives its value a name"
        )

    def __repr__(self) -> str:
        return f"<{self._words}>"

    def __getitem__(self, _index: object) -> NoReturn:
        raise LookupError(self._words)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: {self._words}")


@dataclass
class _HistoryEntry:
    """A value that `Out` has: its id, and how many bytes it holds."""

    identity: int
    size: int


class ValueHistory:
    """What cells of one shell returned, by the numbers of the cells, as far as IPython's `Out` has it."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._returned: tuple[int, object, int] | None = None
        self._outputs: dict[int, _HistoryEntry] = {}
        shell.events.register("post_run_cell", self._after_cell)

    def close(self) -> None:
        """Leave IPython's history alone from now on."""
        self._shell.events.unregister("post_run_cell", self._after_cell)

    def returned(self, value: T, number: int, size: int) -> T:
        """The value of so many bytes, which the running cell is about to return."""
        self._returned = number, value, size
        return value

    def has_grown(self, number: int, size: int) -> None:
        """What that cell returned holds so many bytes more: the run of its handle has ended."""
        if (output := self._outputs.get(number)) is not None:
            output.size += size

    def _after_cell(self, _result: ExecutionResult) -> None:
        if self._returned is None:
            return
        (number, value, size), self._returned = self._returned, None
        if value is not None and self._out.get(number) is value:
            self._shell.user_ns_hidden.pop(f"_{number}", None)
            self._outputs.pop(number, None)
            if size > INLINE_LIMIT or isinstance(value, RunHandle):
                self._outputs[number] = _HistoryEntry(id(value), size)
        del value
        self._let_go()

    @property
    def _out(self) -> dict[int, object]:
        manager = self._shell.history_manager
        return cast("dict[int, object]", manager.output_hist) if manager else {}

    def _let_go(self) -> None:
        """Let the oldest values go that nobody else holds, beyond what may be kept."""
        if sum(each.size for each in self._outputs.values()) <= MOST_BYTES:
            return
        out, names, kept = self._out, self._shell.user_ns, 0
        for number, output in reversed(tuple(self._outputs.items())):
            if id(out.get(number)) != output.identity:
                del self._outputs[number]
                continue
            if output.size <= INLINE_LIMIT:
                continue  # the handle of a run that goes on, or has returned little
            name = f"_{number}"
            own = 1 + (names.get(name) is out[number])
            if sys.getrefcount(out[number]) - 1 > own:
                continue  # `_`, a name or a container of the user's has it, too
            kept += output.size
            if kept > MOST_BYTES:
                out[number] = ReleasedValue(number, output.size)
                if own > 1:
                    names[name] = out[number]
                del self._outputs[number]
