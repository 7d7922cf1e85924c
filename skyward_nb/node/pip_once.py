"""`%pip` on ranks: it runs once on each machine, and its other ranks wait for that."""

from __future__ import annotations

import collections
import fcntl
import importlib
import shlex
import sys
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
                # IPython's own goes on to say that the kernel may be restarted, and there is none here.
                self.shell.system(f"{shlex.quote(sys.executable)} -m pip {line}")
                print(key, file=done)
                failed = self.shell.user_ns.get("_exit_code")
                if line.split()[:1] == ["install"] and not failed:
                    print("`%sky restart` gives ranks that import packages anew.")
        importlib.invalidate_caches()
