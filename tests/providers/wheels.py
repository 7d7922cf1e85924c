"""Wheels of packages that no index has, as an installer finds them in a folder."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(
    folder: Path, name: str, version: str, *requires: str, more: tuple[str, ...] = ()
) -> Path:
    """A package with one module, whose `VERSION` is this, and `more` empty files; its file."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{module}.py": f"VERSION = {version!r}\n",
        **dict.fromkeys(more, ""),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    whole = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(whole, "w") as made:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            made.writestr(path, text)
    return whole
