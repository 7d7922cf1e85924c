"""What readies a framework on each rank, one module per framework; and `sky.plugins`, which chooses.

The functions of `choices` are this package's own, imported when first used. No module here has the
name of one of them: it would take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyward_nb.plugins.choices import (
        PluginChoice,
        huggingface,
        jax,
        keras,
        mig,
        tensorflow,
        torch,
        transformers,
    )

__all__ = [
    "PluginChoice",
    "huggingface",
    "jax",
    "keras",
    "mig",
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
