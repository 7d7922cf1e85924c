"""A script that is to run on ranks, with its arguments: what there has to be, what it needs, and its call."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from skyward_nb.cell.source import Cell, own_cell
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.framework_choice import FrameworkChoice, choose_for_script, imports_of
from skyward_nb.pool.outcome import RunRequest
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec
from skyward_nb.workdir.working_folder import WorkingFolder, key_of


@dataclass(frozen=True)
class Script:
    """A script with its arguments: a file, a folder or an archive with a `__main__.py`, or a `module`."""

    path: Path
    arguments: tuple[str, ...] = ()
    module: str = ""

    @classmethod
    def of(cls, words: Sequence[str], form: str) -> Script:
        """What the words after the options name: `SCRIPT [ARG ...]` or `-m MODULE [ARG ...]`.

        Raises `OptionError` where nothing is named, which shows `form`, or no such module is found.
        """
        if not words or words == ["-m"]:
            what = "module" if words else "script"
            raise OptionError(what, f"a {what} is missing: {form}")
        if words[0] != "-m":
            return cls(Path(words[0]).expanduser(), tuple(words[1:]))
        return cls(_found(words[1]), tuple(words[2:]), words[1])

    @property
    def name(self) -> str:
        """Its name in pictures and logs."""
        return f"-m {self.module}" if self.module else self.path.name

    def check(self) -> None:
        """Raise `OptionError` when there is none, SyntaxError when it is no Python."""
        if not self.path.exists():
            raise OptionError("script", f"there is no script {self.path}")
        if self.path.is_dir() and not (self.path / "__main__.py").is_file():
            raise OptionError("script", f"there is no __main__.py in the folder {self.path}")
        if self.path.suffix == ".py" and self.path.is_file():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # ranks tell them
                compile(self._bytes(), str(self.path), "exec", dont_inherit=True)

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise OptionError(
                "script", f"{self.path} cannot be read: {error.strerror or error}"
            ) from None

    def notes(self, spec: PoolSpec) -> tuple[str, ...]:
        """What a person should know of it on a pool."""
        del spec
        return ()

    def choices(self) -> tuple[Script, ...]:
        """It, with each pool that would do, the first to be tried first."""
        return (self,)

    def for_new_pool(self, options: PoolOptions) -> PoolOptions:
        """The options of a pool that is made for it."""
        return options

    def check_pool(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for a pool that it cannot run on."""

    def frameworks(self) -> FrameworkChoice:
        """Its imports, for `framework=auto`."""
        return choose_for_script(self._text(), os.environ, self._is_beside)

    def modules(self) -> frozenset[str]:
        """The modules that it imports, by their first names; none that are beside it."""
        roots = {each.partition(".")[0] for each in imports_of(self._text())}
        return frozenset(each for each in roots if not self._is_beside(each))

    @property
    def _source(self) -> Path:
        return self.path / "__main__.py" if self.path.is_dir() else self.path

    def _text(self) -> str:
        path = self._source
        return path.read_text(errors="replace") if path.suffix == ".py" else ""

    def _is_beside(self, root: str) -> bool:
        folder = self._source.parent
        return (folder / root).is_dir() or (folder / f"{root}.py").is_file()

    def root(self) -> Path:
        """The folder that it works in: this process's, or its own where it is not below that one."""
        here, path = Path.cwd(), self.absolute
        if self.module or path.is_relative_to(here):
            return here
        return path if path.is_dir() else path.parent

    @property
    def absolute(self) -> Path:
        """Its path; links stay as they are named."""
        return Path(os.path.abspath(self.path))  # noqa: PTH100 - resolves no links

    def folder(self, spec: PoolSpec, options: CellOptions) -> WorkingFolder:
        """Its working folder, on the machines of a pool; raises `OptionError` for options that cannot be obeyed."""
        root, travels = self.root(), options.folder
        if options.fetch and travels == "none" and spec.is_elsewhere:
            raise OptionError(
                "fetch",
                "fetch= brings files of the folder that was sent, and folder=none sends none",
            )
        key = key_of(root, spec.name) if spec.is_elsewhere and travels != "none" else ""
        return WorkingFolder(root, key, takes_all=travels == "all", fetch=options.fetch)

    def request(self, ranks: tuple[int, ...], options: CellOptions, spec: PoolSpec) -> RunRequest:
        """What is asked of a pool, where no cell of a notebook asks."""
        folder = self.folder(spec, options)
        card = msgspec.structs.replace(
            options.card(),
            name=self.name,
            began=time.time(),
            root=os.fsencode(folder.root).decode(errors="replace") if folder.key else "",
            folder=folder.key,
            fetch=options.fetch if folder.key else (),
        )
        return RunRequest(
            cell=self.cell(folder, spec),
            number=0,
            namespace={},
            ranks=ranks,
            push=(),
            card=card,
            folder=folder,
            beside=self.beside(spec, options),
            fewest=self.fewest,
        )

    @property
    def fewest(self) -> int:
        """How many ranks have to end well, where others may be lost; 0: all."""
        return 0

    def beside(self, spec: PoolSpec, options: CellOptions) -> tuple[WorkingFolder, ...]:
        """Other folders that it needs on the machines of a pool."""
        del spec, options
        return ()

    def cell(self, folder: WorkingFolder, spec: PoolSpec) -> Cell:
        """The call that runs it on a rank, in this folder or its copy; it has no value."""
        del spec
        path = (
            str(self.absolute.relative_to(folder.root))
            if self._travels(folder)
            else str(self.path.resolve())
        )
        here = "" if folder.key else str(Path.cwd())
        call = f"run({path!r}, {self.arguments!r}, {here!r}, {self.module!r}, {folder.key!r})"
        return runner_cell("script_runner", call)

    def _travels(self, folder: WorkingFolder) -> bool:
        """Whether its file is in a folder that travels; an installed module is not."""
        return bool(folder.key) and self.absolute.is_relative_to(folder.root)


def runner_cell(module: str, call: str) -> Cell:
    """A call of a module of `runtime` as a cell for ranks; it has no value."""
    own = f"__import__('skyward_nb.runtime.{module}', fromlist=['_']).{call}"
    return replace(own_cell(own), has_value=False)


def _found(module: str) -> Path:
    """The file of a module in this folder, or wherever Python finds it; of a package its `__main__.py`."""
    path: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    parts = module.split(".")
    spec: importlib.machinery.ModuleSpec | None = None
    for number in range(len(parts)):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[: number + 1]), path)
        if spec is None:
            raise OptionError(
                "module", f"there is no module {module}: Python finds no {parts[number]}"
            )
        path = spec.submodule_search_locations
        if path is None and number < len(parts) - 1:
            raise OptionError(
                "module", f"there is no module {module}: {parts[number]} is not a package"
            )
    if path is not None:
        for folder in path:
            if (main := Path(folder, "__main__.py")).is_file():
                return main
        raise OptionError("module", f"{module} is a package without a __main__.py, which `-m` runs")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)
