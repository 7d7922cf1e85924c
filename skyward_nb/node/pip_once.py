"""`%pip` on ranks: it runs once on each machine, and its other ranks wait for that."""

from __future__ import annotations

import collections
import fcntl
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class
from IPython.core.magics.packaging import PackagingMagics

from skyward_nb.runtime import event_sink

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


@magics_class
class PipOnce(PackagingMagics):
    """IPython's own, but for `%pip`; ranks of a machine agree by a file in the folder of its pool."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._asked: collections.Counter[str] = collections.Counter()

    @line_magic
    def pip(self, line: str) -> None:
        """Run pip once on this machine, for all of its ranks that ask for this in this run."""
        said = f"{event_sink.run()} {line.strip()}"
        self._asked[said] += 1
        key = f"{self._asked[said]} {said}"
        with (Path(self.shell.ipython_dir) / "pip").open("a+") as done:
            fcntl.flock(done, fcntl.LOCK_EX)
            done.seek(0)
            if key not in done.read().splitlines():
                super().pip(line)  # pyright: ignore[reportCallIssue] - the decorator is untyped
                print(key, file=done)
        importlib.invalidate_caches()
