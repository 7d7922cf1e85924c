"""The form of a plugin, and the one table of those there are."""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from skyward_nb.words.errors import MissingDependency, OptionError
from skyward_nb.words.info import InstanceInfo

PLUGINS = {"torch": "skyward_nb.plugins.torch"}


@dataclass(frozen=True)
class Place:
    """What a plugin may know when it readies a rank: its place, and this process's means.

    `threads` is its share of the machine's processors, one at least; `rendezvous_fd` is, on the
    head, a socket bound to the rendezvous port and not yet listening.
    """

    info: InstanceInfo
    threads: int
    rendezvous_fd: int | None = None


class Plugin(Protocol):
    """A framework's plugin: a module with these names, nothing else."""

    name: str
    requires: tuple[str, ...]
    """Packages as pip names them; the first is the module looked for."""
    preload: tuple[str, ...]
    """Modules the forge imports before it forks: they start no device and keep no thread."""
    backends: tuple[str, ...]

    def env(self, info: InstanceInfo) -> dict[str, str]:
        """Environment variables of a rank; pure."""
        ...

    def enter(self, place: Place, options: dict[str, str]) -> AbstractContextManager[None]:
        """Ready the framework in this process; leaving undoes it, also after a cut."""
        ...

    def cut(self) -> bool:
        """Cut this process's communication, so that a collective that waits raises; whether there was any.

        Called on another thread than the one that waits.
        """
        ...

    def steps(self) -> dict[str, int]:
        """How many collectives were issued on each of its groups, in the order they were made."""
        ...


def find_plugin(name: str) -> Plugin:
    """The plugin of this name; raises `OptionError` naming those there are."""
    if name not in PLUGINS:
        known = ", ".join([*PLUGINS, "none"])
        raise OptionError("framework", f"framework={name}: there is {known}")
    return importlib.import_module(PLUGINS[name]).PLUGIN


def check_plugin(plugin: Plugin, backend: str) -> None:
    """Raise what would hinder `plugin` on this machine before anything is started."""
    module = plugin.requires[0]
    if importlib.util.find_spec(module) is None:
        raise MissingDependency(
            module, f"framework={plugin.name}", f'pip install "skyward-nb[{plugin.name}]"'
        )
    if backend != "auto" and backend not in plugin.backends:
        known = ", ".join(("auto", *plugin.backends))
        raise OptionError("backend", f"backend={backend}: {plugin.name} has {known}")
