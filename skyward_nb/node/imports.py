"""Modules of the user's project on a rank: imported from the source that came, renewed in place."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from skyward_nb.words.messages import ModuleFile


class ProjectFinder(MetaPathFinder, Loader):
    """Finds modules among the sources that came, before any path is searched."""

    def __init__(self) -> None:
        self._files: dict[str, ModuleFile] = {}
        self._old_objects: dict[tuple[str, str], list[Any]] = {}

    def renew(self, files: Iterable[ModuleFile]) -> None:
        """Take new sources; modules that are imported already get the new content in place.

        Functions and classes stay the objects they are, so that what refers to them has the new
        ones. Raises what a module raises; it then is as it was.
        """
        from IPython.extensions.autoreload import superreload

        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        before = dict(self._files)
        fresh = [file for file in files if before.get(file.name) != file]
        self._files.update({file.name: file for file in fresh})
        for file in fresh:
            module = sys.modules.get(file.name)
            if file.name not in before or module is None:
                continue
            try:
                superreload(module, old_objects=self._old_objects)
            except BaseException as error:
                self._files[file.name] = before[file.name]
                error.add_note(
                    f"while {file.name} ({file.path}), which was edited, was loaded anew"
                )
                raise

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module whose source came."""
        file = self._files.get(fullname)
        if file is None:
            return None
        spec = ModuleSpec(fullname, self, origin=file.path, is_package=file.is_package)
        spec.has_location = True
        if file.is_package:
            # What did not come, such as compiled modules, may lie there nevertheless.
            spec.submodule_search_locations = [str(Path(file.path).parent)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own kind of module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's source in it."""
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - that is importing

    def get_code(self, fullname: str) -> CodeType:
        """The module's code."""
        file = self._files[fullname]
        return compile(file.text, file.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str | None:
        """The module's text, which tracebacks show."""
        file = self._files.get(fullname)
        return file.text if file is not None else None


def import_all(names: Iterable[str]) -> None:
    """Import modules that the notebook has imported, for what they add to their parents."""
    for name in names:
        if name not in sys.modules:
            importlib.import_module(name)
