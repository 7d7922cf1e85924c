"""Enters and leaves the frameworks of a rank, in each generation."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from skyward_nb.plugins.plugin_base import Plugin, RankContext
from skyward_nb.plugins.plugin_table import find_plugin
from skyward_nb.protocol.commands import PluginUse
from skyward_nb.words.info import InstanceInfo, environment


class RankFrameworks:
    """The frameworks that plugins have prepared on this rank."""

    def __init__(self, uses: tuple[PluginUse, ...]) -> None:
        self._options: dict[str, dict[str, str]] = {}
        self.plugins: tuple[Plugin, ...] = ()
        self._entered = ExitStack()
        self._take(uses)

    def _take(self, uses: tuple[PluginUse, ...]) -> None:
        self._options = {use.name: self._options.get(use.name, use.options) for use in uses}
        self.plugins = tuple(map(find_plugin, self._options))

    def enter(self, place: RankContext) -> None:
        """Ready them all; raises what a framework raises, and then has left those that were ready."""
        try:
            for plugin, options in zip(self.plugins, self._options.values(), strict=True):
                self._entered.enter_context(plugin.enter(place, options))
        except BaseException:
            self._entered.close()
            raise

    def leave(self) -> None:
        """Undo it; raises what a framework raises."""
        self._entered.close()
        # Tracebacks in circles keep a group, with its threads and connections.
        gc.collect()

    def add(self, uses: tuple[PluginUse, ...], now: InstanceInfo, env: Mapping[str, str]) -> None:
        """Have these plugins, among them those that there were; set the variables of the others.

        Those of the pool's `env` stay as it has them.
        """
        had = {plugin.name for plugin in self.plugins}
        self._take(uses)
        for plugin in self.plugins:
            if plugin.name not in had:
                options = self._options[plugin.name]
                preset = (word.partition("=") for word in plugin.preload(options))
                os.environ.update({name: value for name, equals, value in preset if equals})
                os.environ.update(plugin.env(now, options))
        os.environ.update(env)

    def move(self, before: InstanceInfo, now: InstanceInfo) -> None:
        """Set the variables of a new place; those of plugins that somebody else has set stay."""
        for plugin in self.plugins:
            options = self._options[plugin.name]
            was = plugin.env(before, options)
            for name, value in plugin.env(now, options).items():
                if os.environ.get(name) == was.get(name):
                    os.environ[name] = value
        os.environ.update(environment(now))

    def have(self, name: str) -> bool:
        """Whether this one is among them."""
        return any(plugin.name == name for plugin in self.plugins)

    def have_groups(self) -> bool:
        """Whether the groups that were formed on entering are there, or others in their place."""
        return all(plugin.has_group() for plugin in self.plugins)

    def leave_open(self) -> bool:
        """Whether objects of users are in the midst of work with other ranks, after a run that failed."""
        return any(plugin.leaves_open() for plugin in self.plugins)

    def keep_state(
        self, folder: Path, generation: int, name_of: Callable[[object], str]
    ) -> str | None:
        """Keep the state of models for the ranks of this generation; what plugins say to that."""
        found = [plugin.keep_state(folder, generation, name_of) for plugin in self.plugins]
        return None if None in found else "; ".join(filter(None, found))

    def regained(self) -> dict[str, str]:
        """By framework, what users made for the groups before and goes on in these, in words."""
        found = {plugin.name: plugin.regained() for plugin in self.plugins}
        return {name: words for name, words in found.items() if words}

    def steps(self, ended: str) -> dict[str, int]:
        """The number of collectives issued on each group, after a cell that `ended` so."""
        return {n: step for plugin in self.plugins for n, step in plugin.steps(ended).items()}
