"""One module per framework that prepares ranks for it; and `sky.plugins`, which chooses frameworks.

The forge imports what plugins `preload`; the agent sets their `env`; ranks `enter` them in the order of
`FRAMEWORKS`, once per generation, and leave in reverse order. The agent binds their ports before ranks are
forked, without listening: a second socket with SO_REUSEADDR may listen there, and no other process gets
the port. A mesh splits data along every axis but `tp`, whose ranks compute one thing together.

The functions of `choices` are this package's own, imported when first used. No module here has the
name of one of them: it would take its place.

No plugin is entered twice in a generation, or left out when leaving. No TensorFlow server reads a byte of another
user's process on its machine (`owner_relay`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyward_nb.plugins.choices import (
        PluginChoice,
        huggingface,
        jax,
        joblib,
        keras,
        mig,
        sklearn,
        tensorflow,
        torch,
        transformers,
    )

__all__ = [
    "PluginChoice",
    "huggingface",
    "jax",
    "joblib",
    "keras",
    "mig",
    "sklearn",
    "tensorflow",
    "torch",
    "transformers",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'skyward_nb.plugins' has no attribute {name!r}")
    from skyward_nb.plugins import choices

    value = getattr(choices, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
