"""Modules of the user's project, which ranks may not have, as source.

The file of a project module is neither in the standard library nor among installed packages: it is
beside the notebook, on a path that the user added, or installed as editable.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from skyward_nb.names.rank_versions import RankVersions
from skyward_nb.protocol.commands import ModuleFile

Stamp = tuple[int, int]
_MOST_FILES = 2000
_MOST_FOLDERS = 500
_OWN = "skyward_nb"
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+(?P<of>[^\W\d][\w.]*)[ \t]+import\b|import[ \t]+(?P<names>[^\n;#]+))",
    re.MULTILINE,
)
_NAMES = re.compile(r"(?:^|,)[ \t]*([^\W\d][\w.]*)")
NOWHERE = Path()
"""The place of a module that cannot be found."""


@dataclass(frozen=True)
class _Source:
    """A file as it was read; `imports` are the modules that it names."""

    stamp: Stamp
    file: ModuleFile
    imports: tuple[str, ...]


_read: dict[tuple[str, str], _Source] = {}
"""The files that this process has read, for all pools, by the module's name and the path."""


class ProjectModules:
    """Which project modules a run needs, and which of them ranks have in the present version.

    `included` are modules that ranks always get, by name, with their files or folders.
    """

    def __init__(self, included: Mapping[str, Path] = MappingProxyType({})) -> None:
        self._included = included
        self._sources: dict[str, _Source] = {}
        self._given: RankVersions[Stamp] = RankVersions()
        self._roots: dict[str, Path | None] = {}

    def changed(self, wanted: Iterable[str], ranks: Collection[int]) -> tuple[ModuleFile, ...]:
        """Project modules among `wanted`, with all their imports, that one of these ranks lacks or has older.

        Each module comes after those that it imports. A package comes as a whole.
        """
        if self._given.is_new_to(ranks):
            wanted = {*wanted, *self._included}
        sources = self._closure(wanted)
        stamps = {name: source.stamp for name, source in sources.items()}
        return tuple(sources[name].file for name in self._given.lacking(stamps, ranks))

    def version(self, modules: Iterable[str]) -> str:
        """A word that changes with the content of these project modules; empty for others."""
        stamps = [source.stamp for source in self._closure(modules).values()]
        return f" {sorted(stamps)}" if stamps else ""

    def sent(self, files: Iterable[ModuleFile], ranks: Collection[int]) -> None:
        """Note that these ranks have these files now."""
        self._given.note({file.name: self._sources[file.name].stamp for file in files}, ranks)

    def forget(self, ranks: Iterable[int] | None = None) -> None:
        """Note that these ranks (None: all) have no modules."""
        self._given.forget(ranks)

    def submodules(self, modules: Iterable[str], tokens: Collection[str]) -> tuple[str, ...]:
        """Submodules that the notebook has imported and that code with these `tokens` may use.

        `import a.b` binds only `a`: a rank has to import `a.b`, too.
        """
        found: dict[str, None] = {}
        todo = [name for name in modules if hasattr(sys.modules.get(name), "__path__")]
        while todo:
            parent = todo.pop()
            for token in tokens:
                name = f"{parent}.{token}"
                if name in sys.modules and name not in found:
                    found[name] = None
                    if hasattr(sys.modules[name], "__path__"):
                        todo.append(name)
        return tuple(sorted(found))

    # ── files ───────────────────────────────────────────────────────────────────────────

    def _closure(self, wanted: Iterable[str]) -> dict[str, _Source]:
        found: dict[str, _Source] = {}
        visited: set[str] = set()
        for top in sorted({name.partition(".")[0] for name in wanted}):
            self._visit(top, found, visited)
        return found

    def _visit(self, top: str, found: dict[str, _Source], visited: set[str]) -> None:
        if top in visited:
            return
        visited.add(top)
        if (root := self._root(top)) is None:
            return
        own: dict[str, _Source] = {}
        for name, path in module_files(top, root):
            source = self._read(name, path)
            if source is not None:
                own[name] = source
        for source in own.values():
            for name in source.imports:
                self._visit(name, found, visited)
        # Inside a package, deeper modules first: its own imports tend to go that way.
        found.update(sorted(own.items(), key=lambda item: -item[0].count(".")))

    def _root(self, top: str) -> Path | None:
        """The file or folder of a top-level project module; None for any other."""
        if top not in self._roots:
            found = self._included.get(top) or find_root(top)
            if found is NOWHERE:
                return None  # so far
            self._roots[top] = found
        root = self._roots[top]
        if root is not None and not root.exists():
            del self._roots[top]
            return None
        return root

    def _read(self, name: str, path: str) -> _Source | None:
        try:
            info = os.stat(path)  # noqa: PTH116 - each run does it for each file
            stamp = (info.st_mtime_ns, info.st_size)
            known = self._sources.get(name)
            if known is not None and known.stamp == stamp and known.file.path == path:
                return known
            source = _read.get((name, path))
            if source is None or source.stamp != stamp:
                text = importlib.util.decode_source(Path(path).read_bytes())
                is_package = path.endswith(f"{os.sep}__init__.py")
                file = ModuleFile(name, path, text, is_package)
                source = _Source(stamp, file, tuple(sorted({*_imports(text)})))
        except (OSError, SyntaxError, UnicodeDecodeError):
            return None
        self._sources[name] = _read[name, path] = source
        return source


def find_root(top: str) -> Path | None:
    """The file or folder of a project module; None for one that is no project's, or `NOWHERE`."""
    if top in sys.stdlib_module_names or top in ("__main__", _OWN):
        return None
    module = sys.modules.get(top)
    spec = getattr(module, "__spec__", None)
    if spec is None:
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            spec = importlib.util.find_spec(top)
    if spec is None:
        return NOWHERE
    folders = list(spec.submodule_search_locations or ())
    if spec.origin is None and folders:
        path = Path(folders[0]) / "__init__.py"  # a package without one
    elif spec.origin is None or (path := Path(spec.origin)).suffix != ".py":
        return None
    if any(path.is_relative_to(folder) for folder in _installed()):
        return None
    return path.parent if path.name == "__init__.py" else path


def _installed() -> Iterator[Path]:
    """Folders of the standard library and of installed packages."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    yield from (Path(sysconfig.get_path(kind)) for kind in kinds)
    yield from map(Path, site.getsitepackages())
    yield Path(site.getusersitepackages())
    yield from (Path(p) for p in sys.path if Path(p).name in ("site-packages", "dist-packages"))


def module_files(top: str, root: Path) -> Iterator[tuple[str, str]]:
    """(module's name, path of its file) of a module, or of everything in a package."""
    if root.is_file():
        yield top, str(root)
        return
    count = 0
    for seen, (folder, folders, files) in enumerate(os.walk(root)):
        if seen > _MOST_FOLDERS:
            return
        folders[:] = sorted(f for f in folders if f.isidentifier() and f != "__pycache__")
        inner = Path(folder).relative_to(root).parts
        for file in sorted(files):
            stem, dot, kind = file.rpartition(".")
            if kind != "py" or not dot or not stem.isidentifier():
                continue
            count += 1
            if count > _MOST_FILES:
                return
            parts = (top, *inner) if stem == "__init__" else (top, *inner, stem)
            yield ".".join(parts), os.path.join(folder, file)  # noqa: PTH118 - each run does it


def _imports(text: str) -> Iterator[str]:
    """Top-level names of the modules that a source imports, and seldom of others that a text in it names.

    Found by the words alone: to parse a project of 500 files takes seconds.
    """
    for place in _IMPORT.finditer(text.replace("\\\n", " ")):
        if place["of"]:
            yield place["of"].partition(".")[0]
        else:
            yield from (name.partition(".")[0] for name in _NAMES.findall(place["names"]))
