"""The table of plugins, and which of them a pool has."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from skyward_nb.plugins.plugin_base import TRUSTS, Plugin
from skyward_nb.protocol.commands import PluginUse
from skyward_nb.words.errors import MissingDependency
from skyward_nb.words.frameworks import with_what_they_need

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

PLUGINS = {
    "mig": "skyward_nb.plugins.mig_plugin",
    "torch": "skyward_nb.plugins.torch_plugin",
    "jax": "skyward_nb.plugins.jax_plugin",
    "tensorflow": "skyward_nb.plugins.tensorflow_plugin",
    "keras": "skyward_nb.plugins.keras_plugin",
    "huggingface": "skyward_nb.plugins.huggingface_plugin",
}
"""Where each plugin is, in no order: `FRAMEWORKS` has that."""


def find_plugin(name: str) -> Plugin:
    """The plugin of this name."""
    return importlib.import_module(PLUGINS[name]).PLUGIN


def uses_of(spec: PoolSpec) -> tuple[PluginUse, ...]:
    """The plugins that a pool's ranks have, in order, with their options; raises `OptionError`."""
    wanted = {"mig": spec.mig} if spec.mig and not spec.simulate else {}
    wanted |= with_what_they_need(spec.framework)
    trusts = {TRUSTS: "yes"} if spec.trust_local_users else {}
    return tuple(
        PluginUse(name, find_plugin(name).options(spec, variant) | trusts)
        for name, variant in wanted.items()
    )


def is_installed(word: str) -> bool:
    """Whether this machine has what a framework, by its word, needs."""
    return all(
        importlib.util.find_spec(module) is not None
        for name in with_what_they_need([word])
        for module in find_plugin(name).modules
    )


def check_installed(use: PluginUse) -> None:
    """Raise `MissingDependency` for a package that a plugin needs and this machine lacks."""
    plugin = find_plugin(use.name)
    for module in plugin.modules:
        if importlib.util.find_spec(module) is None:
            raise MissingDependency(
                module, f"framework={plugin.name}", f'pip install "skyward-nb[{plugin.name}]"'
            )
