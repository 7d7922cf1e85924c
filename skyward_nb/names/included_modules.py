"""The modules of the user that an image includes, by name or path, located when the image is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from skyward_nb.names.project_modules import NOWHERE, find_root, module_files
from skyward_nb.words.errors import OptionError

_OWN = ("__main__", "skyward_nb")


def located(includes: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Modules of the project by their absolute paths, installed ones by their names as before.

    Names are found as `import` finds them, else in `folder`, where relative paths begin, too. Raises
    `OptionError` for a missing module, or one that could not be imported under its name.
    """
    found: dict[str, str] = {}
    for text in includes:
        path = _path(text, folder)
        if path is None:
            found[text] = text
            continue
        top = _top(path)
        if found.setdefault(top, str(path)) != str(path):
            raise _refusal(text, f"{found[top]} is a module {top!r} already")
    return tuple(found.values())


def roots(includes: Iterable[str]) -> dict[str, Path]:
    """The file or folder of each module that is `located` by path."""
    return {_top(Path(text)): Path(text) for text in includes if os.sep in text}


def _refusal(text: str, why: str) -> OptionError:
    return OptionError("includes", f"includes={text}: {why}")


def _top(path: Path) -> str:
    return path.stem if path.suffix == ".py" else path.name


def _path(text: str, folder: Path) -> Path | None:
    """The place of a module of the project; None for an installed one."""
    if os.sep in text or text.startswith(("~", ".")) or text.endswith(".py"):
        path = folder / Path(text).expanduser()
        # A link keeps its name, which is the module's.
        is_named = path.name not in ("", "..")
        return _checked(text, path.parent.resolve() / path.name if is_named else path.resolve())
    top, *inner = text.split(".")
    root = find_root(top)
    if root is None:
        return None
    if root == NOWHERE:
        beside = [each for each in (folder / f"{top}.py", folder / top) if each.exists()]
        if not beside:
            why = (
                f"there is no module {top} to import here, and neither {top}.py nor a folder {top}"
            )
            raise _refusal(text, f"{why} in {folder}")
        root = beside[0]
    inside = root.joinpath(*inner)
    if inner and not (inside.is_dir() or inside.with_name(f"{inside.name}.py").is_file()):
        raise _refusal(text, f"{root} has no {'.'.join(inner)}")
    return _checked(text, root)


def _checked(text: str, path: Path) -> Path:
    """The path of a file or folder that can be imported; raises `OptionError` for others."""
    if path.name == "__init__.py":
        path = path.parent
    top = _top(path)
    if not path.exists():
        raise _refusal(text, f"there is no {path}")
    if path.is_file() and path.suffix != ".py":
        raise _refusal(text, "give a .py file or the folder of a package")
    if path.is_dir() and not any(True for _ in module_files(top, path)):
        raise _refusal(text, f"there is no .py file in {path}")
    if not top.isidentifier():
        raise _refusal(text, f"{top!r} cannot be imported by that name")
    if top in sys.stdlib_module_names or top in _OWN:
        raise _refusal(text, f"it would take the place of {top}, which is there already")
    return path
