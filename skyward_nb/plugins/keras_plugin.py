"""Keras 3: its backend set before it is imported, and on JAX its distribution over all devices.

On torch and TensorFlow, Keras itself distributes nothing: those frameworks are readied, and the ranks that run a
cell or a call together train one model in `fit` (`runtime/keras_together`), unless each is to train by itself.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skyward_nb.compat import keras_private
from skyward_nb.plugins.plugin_base import PlainPlugin, RankContext
from skyward_nb.runtime import keras_settings
from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import FRAMEWORKS
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mesh import Axes

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

_MODEL_AXIS = "tp"


@dataclass(frozen=True)
class KerasPlugin(PlainPlugin):
    """`keras:jax`, `keras:torch`, `keras:tensorflow`."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """`backend`; raises `OptionError` where env= says another, or for a mesh Keras has no use for."""
        asked = spec.variables.get("KERAS_BACKEND", variant)
        if asked != variant:
            raise OptionError(
                "env",
                f"env=KERAS_BACKEND={asked} and framework=keras:{variant} contradict each other",
            )
        others = [name for name, _ in spec.mesh if name != _MODEL_AXIS]
        if variant == "jax" and len(others) < len(spec.mesh) and len(others) > 1:
            raise OptionError(
                "mesh", "Keras splits along one axis for data, and `tp` for the model"
            )
        return {"backend": variant}

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """Keras, once it is known with which backend."""
        return (f"KERAS_BACKEND={options['backend']}", "keras")

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """KERAS_BACKEND."""
        del info
        return {"KERAS_BACKEND": options["backend"]}

    @contextmanager
    def enter(self, place: RankContext, options: dict[str, str]) -> Generator[None]:
        """Set the distribution; raises RuntimeError where Keras was imported with another backend."""
        import keras

        backend = options["backend"]
        keras_settings.set_seed()
        if keras.config.backend() != backend:
            raise RuntimeError(
                f"Keras was imported with its {keras.config.backend()} backend, and cannot "
                f"change to {backend}: is it imported when Python starts?"
            )
        if backend == "jax":
            with _distributed(place.info.mesh), keras_private.seeds_drawn_from(_Alike(place.info)):
                yield
        else:
            yield


def settled(words: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """The words, with `keras` alone on the backend it has here: what `env` says, or is installed.

    What else is asked for, if it is one that Keras runs on, counts after `env`; then the backend of a
    Keras that is imported in this process.
    """
    if "keras" not in words:
        return words
    here = sys.modules.get("keras")
    asked = env.get("KERAS_BACKEND") or os.environ.get("KERAS_BACKEND")
    imported = here.config.backend() if here is not None and hasattr(here, "config") else None
    known = next(each.variants for each in FRAMEWORKS if each.name == "keras")
    found = [name for name in known if importlib.util.find_spec(name) is not None]
    beside = [word for word in words if word in known]
    backend = asked or (beside[0] if len(beside) == 1 else None) or imported or (found or known)[0]
    if backend not in known:
        raise OptionError("framework", f"framework=keras: there is no {backend} backend here")
    return tuple(f"keras:{backend}" if word == "keras" else word for word in words)


@contextmanager
def _distributed(axes: Axes) -> Generator[None]:
    """Keras's distribution over all devices of JAX: of data, or with an axis `tp` of the model, too."""
    import keras

    before = keras.distribution.distribution()
    keras.distribution.set_distribution(_distribution(axes))
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)


class _Alike:
    """What Keras draws its default seeds from: the same on all ranks, until code sets a seed.

    So weights begin alike, as JAX demands of what all ranks hold. Keras's own
    `distribution.initialize` seeds all of Python alike for that, and imports TensorFlow.
    """

    def __init__(self, info: InstanceInfo) -> None:
        self._own = random.Random(f"{info.job_id} {info.generation}")  # noqa: S311 - no secret

    def randint(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return (random if keras_private.is_seeded() else self._own).randint(low, high)


def _distribution(axes: Axes) -> Any:
    import keras

    if _MODEL_AXIS not in dict(axes):
        return keras.distribution.DataParallel(auto_shard_dataset=False)
    # A data axis of one where there is none: Keras splits data along one axis in any case.
    if len(axes) == 1:
        axes = (("data", 1), *axes)
    mesh = keras.distribution.DeviceMesh(
        tuple(size for _, size in axes), [name for name, _ in axes]
    )
    data = next(name for name, _ in axes if name != _MODEL_AXIS)
    ways = dict(axes)[_MODEL_AXIS]

    class ByShape(keras.distribution.ModelParallel):
        """Weights of two dimensions and more split along the last one, where that can be."""

        def get_variable_layout(self, variable: Any) -> Any:
            """The layout it was given, else one by its shape: whatever it is, results are the same."""
            chosen = super().get_variable_layout(variable)
            shape = variable.shape
            if any(chosen.axes) or len(shape) < 2 or shape[-1] % ways:
                return chosen
            spec = [None] * (len(shape) - 1) + [_MODEL_AXIS]
            return keras.distribution.TensorLayout(spec, mesh)

    return ByShape(
        layout_map=keras.distribution.LayoutMap(mesh),
        batch_dim_name=data,
        auto_shard_dataset=False,
    )


PLUGIN = KerasPlugin("keras", image=("keras>=3.8",), modules=("keras",))
