"""A task file as a script that runs on a pool: which pool it needs, and its call on each node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import UNSET

from skyward_nb.cell.source import Cell
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.option_line import of_script
from skyward_nb.options.task_file import Task, read_task
from skyward_nb.reports.scripts import Script, runner_cell
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.volume import Volume
from skyward_nb.workdir.working_folder import WorkingFolder, key_of

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

    def notes(self, spec: PoolSpec) -> tuple[str, ...]:
        """What of the file is not obeyed on a pool."""
        left = [*self.task.left_out]
        mounted = {volume.mount for volume in spec.volumes}
        for target, source in self.task.mounts:
            if _is_s3(source):
                left += [f"file_mounts.{target} (S3 is for rented machines)"] * (
                    target not in mounted
                )
            elif not spec.is_elsewhere:
                left.append(f"file_mounts.{target} (nothing is linked on this machine)")
        told = [f"left out of {self.path.name}: {', '.join(left)}"] if left else []
        return (*told, *self._other_pool(spec))

    def _other_pool(self, spec: PoolSpec) -> Iterator[str]:
        """What a pool has less, or other, than the file asks for: it was up, or the line says so."""
        ways = [_asked(pool) for pool in (self.task.pool, *self.task.others)]
        if all(each.nodes not in (UNSET, spec.nodes) for each in ways):
            yield f"{self.path.name} asks for nodes={ways[0].nodes}, and pool {spec.name} has {spec.nodes}"
        if all(each.accelerator not in (UNSET, spec.accelerator) for each in ways):
            wanted = " or ".join(dict.fromkeys(str(each.accelerator) for each in ways))
            has = spec.accelerator or "none"
            yield f"{self.path.name} asks for accelerator={wanted}, and pool {spec.name} has {has}"

    def choices(self) -> tuple[Script, ...]:
        """The task with each of its resources."""
        pools = (self.task.pool, *self.task.others)
        return tuple(replace(self, task=replace(self.task, pool=pool)) for pool in pools)

    def check(self) -> None:
        """Raise `OptionError` where it runs nothing, or its folder is none."""
        if not (self.task.run or self.task.setup):
            raise OptionError("script", f"{self.path} has neither run nor setup")
        if not self.root().is_dir():
            raise OptionError("script", f"workdir: there is no folder {self.root()}")
        for target, source in self.task.mounts:
            if not _is_s3(source) and not _here(source).exists():
                raise OptionError(
                    "script", f"file_mounts: {target}: there is no file or folder {_here(source)}"
                )

    def root(self) -> Path:
        """Its `workdir`, or this process's folder."""
        return Path(self.task.workdir or ".").expanduser().absolute()

    def frameworks(self) -> FrameworkChoice:
        """None: its programs are processes of their own."""
        return FrameworkChoice((), "a task file has programs of its own")

    def for_new_pool(self, options: PoolOptions) -> PoolOptions:
        """The options of a pool that is made for it: its resources, and a rank for each node."""
        ours = _asked(self.task.pool).changed(ranks_per_node=1, framework=())
        asked = options.over(ours)
        volumes = [_volume(*each) for each in self.task.mounts if _is_s3(each[1])]
        if volumes and asked.provider == "aws" and asked.volumes is UNSET:
            asked = asked.changed(volumes=tuple(volumes))
        return asked

    def beside(self, spec: PoolSpec, options: CellOptions) -> tuple[WorkingFolder, ...]:
        """The folders of `file_mounts`."""
        takes_all = options.folder == "all"
        return tuple(replace(each, takes_all=takes_all) for _, each in self._mounted(spec))

    def _mounted(self, spec: PoolSpec) -> Iterator[tuple[str, WorkingFolder]]:
        """By the path on nodes, the folder or file of this machine."""
        for target, source in self.task.mounts if spec.is_elsewhere else ():
            path = _here(source)
            if not _is_s3(source):
                real = path.resolve()  # a mount that is a link is what it leads to
                is_file = real.is_file()
                root = real.parent if is_file else path
                yield target, WorkingFolder(root, key_of(path, spec.name), only=real.name * is_file)

    def cell(self, folder: WorkingFolder, spec: PoolSpec) -> Cell:
        """The call that runs it on a rank; it has no value."""
        task, here = self.task, "" if folder.key else str(folder.root)
        mounts = [(target, each.key, each.only) for target, each in self._mounted(spec)]
        call = (
            f"run({task.setup!r}, {task.run!r}, {dict(task.env)!r}, {here!r}, {task.name!r}, "
            f"{folder.key!r}, {mounts!r}, {_place(spec)!r})"
        )
        return runner_cell("task_runner", call)


def _asked(pool: Mapping[str, str]) -> PoolOptions:
    """What resources ask of a pool."""
    return of_script([f"{name}={value}" for name, value in pool.items()]).pool


def _is_s3(source: str) -> bool:
    return source.startswith("s3://")


def _here(source: str) -> Path:
    return Path(source).expanduser().absolute()


def _volume(target: str, source: str) -> Volume:
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    return Volume(bucket=bucket, mount=target, prefix=prefix)


def _place(spec: PoolSpec) -> tuple[str, str, str]:
    """Cloud, region and zone of a pool, as far as its options say."""
    if spec.aws is None:
        return spec.provider, "", ""
    regions = tuple(filter(None, (spec.aws.region, *spec.aws.regions)))
    zones = spec.aws.zones
    region = regions[0] if len(regions) == 1 else ""
    return spec.provider, region, zones[0] if len(zones) == 1 else ""


def script_of(words: Sequence[str], form: str) -> Script:
    """What the words after the options of `run` name: a script, a module, or a task file; raises `OptionError`."""
    if words and words[0].endswith(SUFFIXES) and Path(words[0]).expanduser().is_file():
        return TaskScript.of_file(words)
    return Script.of(words, form)
