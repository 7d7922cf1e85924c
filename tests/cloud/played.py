"""What came of the cases of failing calls, on disk: all take longer than a run may, and the next one goes on there."""

from __future__ import annotations

import json
import os
from pathlib import Path

from skyward_nb.bootstrap.package import Package


class Played:
    """The cases that were played with this very package; those with another one do not count."""

    def __init__(self, root: Path) -> None:
        self._path = root / "build" / "cloud-faults.jsonl"
        self._package = Package().digest

    def codes(self) -> dict[str, int]:
        """By case, what its process ended with."""
        if not self._path.exists():
            return {}
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return {each["case"]: each["code"] for each in lines if each["package"] == self._package}

    def note(self, case: str, code: int) -> None:
        """One more; processes that play side by side do not disturb one another."""
        self._path.parent.mkdir(exist_ok=True)
        line = json.dumps({"package": self._package, "case": case, "code": code}) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def forget(self) -> None:
        self._path.unlink()
