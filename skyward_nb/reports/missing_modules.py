"""Modules and compilers that ranks lack: what to install them by, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from skyward_nb.bootstrap import requirements
from skyward_nb.protocol.events import RankDone
from skyward_nb.system.distributions import distribution_of, lacked_module
from skyward_nb.words.ranks import count_ranks
from skyward_nb.words.spec import PoolSpec
from skyward_nb.workdir.working_folder import WorkingFolder

_TOOLS = (
    (
        re.compile(r"Failed to find C compiler|No working C\+\+ compiler"),
        "a C compiler",
        "g++",
    ),  # brings the headers of C, too
    (
        re.compile(r"Python\.h: No such file"),
        "the headers of Python (Python.h)",
        "python{minor}-dev",
    ),
)
"""How their absence is told, what it is that lacks, and its package. Sources: triton/runtime/build.py,
torch/_inductor/exc.py."""


def of_missing_modules(
    failed: Iterable[RankDone], spec: PoolSpec, folder: WorkingFolder | None
) -> tuple[str, ...]:
    """What to do where the code of ranks imported modules that are not there; `folder` is that of a script."""
    failed = tuple(failed)
    lacking: dict[str, list[int]] = {}
    for end in failed:
        failure = end.failure
        if failure is None or failure.type_name != "ModuleNotFoundError":
            continue
        if module := lacked_module(failure.message):
            lacking.setdefault(module, []).append(end.rank)
    modules = [_advice(module, ranks, spec, folder) for module, ranks in lacking.items()]
    return (*modules, *_of_missing_tools(failed, spec))


def _of_missing_tools(failed: Iterable[RankDone], spec: PoolSpec) -> Iterator[str]:
    """What to do where torch.compile, or Triton, had nothing to compile with."""
    for said, lack, package in _TOOLS:
        ranks = [end.rank for end in failed if end.failure and said.search(end.failure.message)]
        if not ranks:
            continue
        named = package.format(minor=requirements.minor())
        way = f"`sudo apt-get install {named}` there brings it"
        if spec.is_elsewhere:
            way = f"apt={named} on the line installs it, and ranks keep what they have"
        yield f"torch.compile and Triton need {lack}, which {count_ranks(ranks)} lack{'s' * (len(ranks) == 1)}: {way}"


def _advice(module: str, ranks: list[int], spec: PoolSpec, folder: WorkingFolder | None) -> str:
    lack = f"{count_ranks(ranks)} lack{'s' * (len(ranks) == 1)} the module {module}"
    if not spec.is_elsewhere:
        package = distribution_of(module)
        return (
            f"{lack}, as this Python does: pip install {package}, or pip={package} on the line, which "
            "installs it for ranks alone"
        )
    if folder is not None:
        for name in (f"{module}.py", module):
            if (folder.root / name).exists():
                return f"{lack}: {name} is in {folder.root}, and .gitignore, .skyignore or folder=none keeps it here"
    if spec.image.interpreter is not None:
        return f"{lack}: install {distribution_of(module)} there, for {spec.image.interpreter}"
    return f"{lack}: pip={distribution_of(module)} on the line installs it, and the pool stays up"
