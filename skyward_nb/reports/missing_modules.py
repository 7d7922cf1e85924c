"""Modules that ranks lack: what to install them by, in words."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.protocol.events import RankDone
from skyward_nb.system.distributions import distribution_of, lacked_module
from skyward_nb.words.ranks import count_ranks
from skyward_nb.words.spec import PoolSpec
from skyward_nb.workdir.working_folder import WorkingFolder


def of_missing_modules(
    failed: Iterable[RankDone], spec: PoolSpec, folder: WorkingFolder | None
) -> tuple[str, ...]:
    """What to do where the code of ranks imported modules that are not there; `folder` is that of a script."""
    lacking: dict[str, list[int]] = {}
    for end in failed:
        failure = end.failure
        if failure is None or failure.type_name != "ModuleNotFoundError":
            continue
        if module := lacked_module(failure.message):
            lacking.setdefault(module, []).append(end.rank)
    return tuple(_advice(module, ranks, spec, folder) for module, ranks in lacking.items())


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
