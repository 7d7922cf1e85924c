"""A task file as a script that runs on a pool: which pool it needs, and its call on each node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skyward_nb.cell.source import Cell
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.option_line import of_script
from skyward_nb.options.task_file import Task, read_task
from skyward_nb.reports.scripts import Script, runner_cell
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class TaskScript(Script):
    """SkyPilot's task file, run by one rank on each node."""

    task: Task = field(kw_only=True)

    @classmethod
    def of_file(cls, words: Sequence[str]) -> TaskScript:
        """What a file and the words after it say; raises `OptionError`."""
        path = Path(words[0]).expanduser()
        try:
            text = path.read_text()
        except (OSError, ValueError) as error:
            raise OptionError("script", f"{path} cannot be read: {error}") from None
        return cls(path, tuple(words[1:]), task=read_task(text, words[0], words[1:], os.environ))

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the file is not obeyed."""
        left = ", ".join(self.task.left_out)
        return (f"left out of {self.path.name}: {left}",) if left else ()

    def check(self) -> None:
        """Raise `OptionError` where it runs nothing, or its folder is none."""
        if not (self.task.run or self.task.setup):
            raise OptionError("script", f"{self.path} has neither run nor setup")
        if not self._folder().is_dir():
            raise OptionError("script", f"workdir: there is no folder {self._folder()}")

    def _folder(self) -> Path:
        return Path(self.task.workdir or ".").expanduser().absolute()

    def frameworks(self) -> FrameworkChoice:
        """None: its programs are processes of their own."""
        return FrameworkChoice((), "a task file has programs of its own")

    def for_new_pool(self, options: PoolOptions) -> PoolOptions:
        """The options of a pool that is made for it: its resources, and a rank for each node."""
        words = [f"{name}={value}" for name, value in self.task.pool.items()]
        ours = of_script(words).pool.changed(ranks_per_node=1, framework=())
        return options.over(ours)

    def cell(self) -> Cell:
        """The call that runs it on a rank; it has no value."""
        task = self.task
        call = f"run({task.setup!r}, {task.run!r}, {dict(task.env)!r}, {str(self._folder())!r}, {task.name!r})"
        return runner_cell("task_runner", call)


def script_of(words: Sequence[str], form: str) -> Script:
    """What the words after the options of `run` name: a script, a module, or a task file; raises `OptionError`."""
    if words and words[0].endswith(SUFFIXES) and Path(words[0]).expanduser().is_file():
        return TaskScript.of_file(words)
    return Script.of(words, form)
