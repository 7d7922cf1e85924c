"""What came of the cases of failing calls, on disk: all take longer than a run may, and the next one goes on there."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from skyward_nb.bootstrap.package import Package


def _files(root: Path) -> list[Path]:
    """The files that a case depends on beside those of `Package`."""
    plays = root / "tests" / "cloud"
    found = [*plays.rglob("*.py"), *(plays / "image").iterdir()]
    return sorted([*found, *(root / "skyward_nb").rglob("*.sh")])


class Played:
    """The cases that were played with these very files: the package, `deadman.sh` and who plays them; others do not count."""

    def __init__(self, root: Path) -> None:
        self._path = root / "build" / "cloud-faults.jsonl"
        digest = hashlib.sha256(Package().digest.encode())
        for path in _files(root):
            digest.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
        self._digest = digest.hexdigest()[:16]

    def codes(self) -> dict[str, int]:
        """By case, what its process ended with."""
        if not self._path.exists():
            return {}
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        return {each["case"]: each["code"] for each in lines if each.get("files") == self._digest}

    def note(self, case: str, code: int) -> None:
        """One more; processes that play side by side do not disturb one another."""
        self._path.parent.mkdir(exist_ok=True)
        line = json.dumps({"files": self._digest, "case": case, "code": code}) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)

    def forget(self) -> None:
        self._path.unlink()
