"""Runs the cells of a page in a kernel of another environment: what `.ci/wheel` does with each.

python -m gate.page_cells PYTHON PAGE
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from docs.blocks import blocks_of, not_shown
from jupyter_client.manager import KernelManager
from kernels import Kernel, by_files


def run_page(page: str, python: Path) -> None:
    """Run the cells of a page in a kernel of this Python, which has to show what the page says."""
    with by_files() as config:
        manager = KernelManager(kernel_name="python3", config=config)
        manager.kernel_spec.argv[0] = str(python)
        # Neither this tree nor its tests are there.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        manager.start_kernel(cwd=str(python.parent), env=env)
        kernel = Kernel(manager)
        try:
            for block in blocks_of(page):
                if block.language == "python" and not block.not_run:
                    ran = kernel.run(block.code, timeout=120)
                    assert ran.status == "ok", ran.traceback
                    assert (
                        not_shown(block.shows, f"{ran.picture}\n{ran.stdout}\n{ran.result}") == []
                    )
            where = kernel.run("skyward_nb = __import__('skyward_nb'); skyward_nb.__file__").result
            assert str(python.parents[1]) in where
        finally:
            kernel.client.stop_channels()
            manager.shutdown_kernel()
            manager.cleanup_resources()


if __name__ == "__main__":
    run_page(sys.argv[2], Path(sys.argv[1]).absolute())
