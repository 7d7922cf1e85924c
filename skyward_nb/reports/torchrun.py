"""A line of `torchrun` as a script that runs on a pool: which pool it needs, and its call on each rank."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace as replace_fields

from skyward_nb.bootstrap.requirements import package_name
from skyward_nb.cell.source import Cell
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.option_line import ParsedOptions
from skyward_nb.options.torchrun_line import TorchrunLine, read_torchrun
from skyward_nb.plugins.plugin_table import find_plugin
from skyward_nb.reports.scripts import Script, runner_cell
from skyward_nb.words.errors import OptionError
from skyward_nb.words.image import Image
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec
from skyward_nb.workdir.working_folder import WorkingFolder

_PORTS = range(20_000, 30_000)
"""Below those that Linux gives out by itself."""


@dataclass(frozen=True)
class Torchrun(Script):
    """A script under PyTorch's elastic agents, one on each node of a pool."""

    line: TorchrunLine = field(kw_only=True)

    @classmethod
    def of_line(cls, words: Sequence[str], program: str) -> Torchrun:
        """What the words after `torchrun` say; raises `OptionError`."""
        line = read_torchrun(words, program)
        if "module" in line.options:
            found = Script.of(["-m", line.script, *line.arguments], program)
            return cls(found.path, line.arguments, line.script, line=line)
        return cls(Path(line.script), line.arguments, line=line)

    @property
    def name(self) -> str:
        """Its name in pictures and logs."""
        return f"torchrun {super().name}"

    @property
    def is_elastic(self) -> bool:
        """Whether it goes on where a node is lost."""
        fewest, most = self.line.nodes
        return fewest < most

    @property
    def fewest(self) -> int:
        """How many nodes have to end well: where it is elastic, others may be lost."""
        return self.line.nodes[0] if self.is_elastic else 0

    def options(self, asked: ParsedOptions) -> ParsedOptions:
        """The options of its run: where it is elastic, agents are waited for if one is lost."""
        if not self.is_elastic or "on_error" in asked.cell.stated:
            return asked
        stated = (*asked.cell.stated, "on_error")
        return replace_fields(asked, cell=replace(asked.cell, on_error="wait", stated=stated))

    def check(self) -> None:
        """Raise `OptionError` when there is no such script, SyntaxError when it is no Python."""
        if "no-python" not in self.line.options:
            super().check()
        elif "/" in self.line.script and not self.path.exists():
            raise OptionError("script", f"there is no program {self.path}")

    def frameworks(self) -> FrameworkChoice:
        """None: workers form their own groups, and nodes' agents meet by themselves."""
        return FrameworkChoice((), "workers of torchrun form their own groups")

    def for_new_pool(self, options: PoolOptions) -> PoolOptions:
        """The options of a pool that is made for it: a rank for each node; raises `OptionError` for too few nodes."""
        if isinstance(options.nodes, int):
            self._check_nodes(
                options.nodes, f"nodes={options.nodes} is on the line, or a default of yours"
            )
        ours = PoolOptions(nodes=self.line.nodes[1], ranks_per_node=1, framework=())
        return _with_torch(options.over(ours))

    def check_pool(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for a pool that has too few nodes for it."""
        has = f"pool {spec.name!r} has {spec.nodes} node{'s' * (spec.nodes != 1)}"
        self._check_nodes(spec.nodes, f"{has}: pool=NAME takes another one, or makes it")

    def _check_nodes(self, nodes: int, has: str) -> None:
        fewest, most = self.line.nodes
        if nodes < fewest:
            asked = f"{fewest}:{most}" if self.is_elastic else f"{fewest}"
            raise OptionError("nnodes", f"--nnodes={asked}, and {has}")

    def cell(self, folder: WorkingFolder, spec: PoolSpec) -> Cell:
        """The call that is the elastic agent on a rank; it has no value."""
        line, script = self.line, self.line.script
        if (
            self._travels(folder)
            and "module" not in line.options
            and "no-python" not in line.options
        ):
            script = str(self.absolute.relative_to(folder.root))
        here = "" if folder.key else str(Path.cwd())
        port = random.choice(_PORTS)  # noqa: S311 - no secret
        call = (
            f"run({line.options!r}, {line.nodes[1]}, {script!r}, {line.arguments!r}, "
            f"{here!r}, {port}, {folder.key!r}, trusts={spec.trust_local_users})"
        )
        return runner_cell("elastic_agent", call)


def _with_torch(options: PoolOptions) -> PoolOptions:
    """Options with the packages of the agents on other machines: no framework of the pool brings them.

    An image of one's own stays as it is.
    """
    if isinstance(options.image, Image) or options.provider in (UNSET, "local"):
        return options
    asked = options.pip or ()
    named = {package_name(each) for each in asked}
    lacking = [each for each in find_plugin("torch").image if package_name(each) not in named]
    return options.changed(pip=(*asked, *lacking)) if lacking else options
