"""Containers that ranks changed in place: told once, where the notebook reads its own, which is as it was."""

from __future__ import annotations

import ast
import contextlib
import warnings

from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell

from skyward_nb.cell.cell_names import CellNames, names_of
from skyward_nb.notebook.pools import Pools
from skyward_nb.words.ranks import count_ranks


class AlteredNames:
    """Looks at the cells of the notebook while ranks have such containers."""

    def __init__(self, shell: InteractiveShell, pools: Pools) -> None:
        self._shell = shell
        self._pools = pools
        shell.events.register("pre_run_cell", self._before_cell)

    def close(self) -> None:
        """Look at no more cells."""
        self._shell.events.unregister("pre_run_cell", self._before_cell)

    def _before_cell(self, info: ExecutionInfo) -> None:
        for name in self._pools:
            ledger = self._pools[name].context.known_ledger
            if ledger is None or not ledger.altered or self._pools[name].closed:
                continue
            if (names := self._names(str(info.raw_cell))) is not None:
                self._tell(ledger.altered, names.reads, name)
                self._pools[name].sending.rebound(names.writes)

    def _names(self, text: str) -> CellNames | None:
        if "%%sky_remote" in text or "%sky pull" in text:
            return None  # it runs on ranks, or brings what they have
        lines = ("" if each.lstrip().startswith("%sky ") else each for each in text.splitlines())
        code = self._shell.transform_cell("\n".join(lines))
        if "run_cell_magic('sky_remote'" in code:
            return None  # `%sky on`
        with warnings.catch_warnings(), contextlib.suppress(SyntaxError):
            warnings.simplefilter("ignore")  # the cell itself tells them
            tree = compile(
                code,
                "<cell>",
                "exec",
                ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            )
            return names_of(tree, self._shell.transform_cell)
        return None

    def _tell(self, altered: dict[str, set[int]], reads: frozenset[str], pool: str) -> None:
        """Print a line for each such name that the cell reads, and forget it."""
        where = "" if pool == "default" else f" pool={pool}"
        for name in sorted(reads & altered.keys()):
            ranks = altered.pop(name)
            print(
                f"{name}: {count_ranks(ranks)} changed {'its' if len(ranks) == 1 else 'their'} copy in place, and "
                f"the notebook's is as it was; `%sky pull {name}{where}` brings what ranks have"
            )
