"""Scripts in processes of their own, as a person runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FAULTS = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1)\n"


def begin(path: Path, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """A script that runs; what it says comes line by line."""
    return subprocess.Popen(
        [sys.executable, "-u", str(path), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


def run(
    path: Path, *args: str, timeout: float = 100, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A script that has run to its end."""
    return subprocess.run(
        [sys.executable, str(path), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )


def run_text(text: str, folder: Path, **options: float) -> subprocess.CompletedProcess[str]:
    """Run a script of this text."""
    path = folder / "script.py"
    path.write_text(text)
    return run(path, **options)
