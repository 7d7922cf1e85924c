"""How models, layers, optimizers and all else that Keras saves travel: as Keras saves them, with what is not Keras's own.

Keras finds classes and functions of others by the names under which they are registered; a notebook's are registered
in the notebook at most. So they get names for the journey, and come along.
"""

from __future__ import annotations

import inspect
import io
import pickle
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from skyward_nb.compat import keras_private
from skyward_nb.pickling import keras_arguments

_METADATA = "metadata.json"
_registered: dict[str, Any] = {}
"""What was registered with Keras here for having come."""


def keras_object(saved: Any) -> Any:
    """A model, layer or optimizer as Keras saves it, with the classes and functions that Keras does not have itself.

    Without the time, so that equal ones are equal bytes: a model would count as changed a second later, and take the
    place of the one that ranks have trained.
    """
    import zipfile

    own: dict[str, Any] = {}
    registered: dict[str, Any] = {}
    compiled_with = keras_arguments.of_own_compile(saved)
    with (
        keras_private.naming_objects(own, registered),
        keras_arguments.written_by_number(saved) as given,
        keras_private.not_compiled(saved) if compiled_with is not None else nullcontext(),
    ):
        make, (archive,) = saved.__reduce__()
    dateless = io.BytesIO()
    with zipfile.ZipFile(archive) as dated, zipfile.ZipFile(dateless, "w") as plain:
        # The metadata has the time, and a version of Keras; loading takes no notice of it.
        for name in (each for each in dated.namelist() if each != _METADATA):
            plain.writestr(zipfile.ZipInfo(name), dated.read(name))
    data = pickle.PickleBuffer(dateless.getbuffer())
    layers = keras_private.layers_of(saved)
    known = tuple((str(each.name), bool(each.trainable)) for each in layers)
    way = make.__self__, make.__name__, data, own, registered, known, given, compiled_with
    return _make_keras, way


def _make_keras(
    kind: type,
    maker: str,
    archive: Any,
    own: Mapping[str, Any],
    registered: Mapping[str, Any],
    known: tuple[tuple[str, bool], ...],
    given: list[keras_arguments.Arguments],
    compiled_with: keras_arguments.Arguments | None,
) -> Any:
    import keras

    for name, each in registered.items():
        # Not what this process has registered itself.
        if keras.saving.get_registered_object(name) in (None, _registered.get(name)):
            package, _, rest = name.partition(">")
            _registered[name] = keras.saving.register_keras_serializable(package, rest)(each)
    makers = {
        name: _Maker(each, given)
        if isinstance(each, type) and hasattr(each, "from_config")
        else each
        for name, each in own.items()
    }
    with keras.saving.custom_object_scope(makers):
        made = getattr(kind, maker)(io.BytesIO(archive))
    # Keras keeps that of its own layers, but not of all that a class of the notebook makes.
    layers = keras_private.layers_of(made)
    if len(layers) == len(known):
        for layer, (name, trains) in zip(layers, known, strict=True):
            if layer.trainable is not trains:
                layer.trainable = trains
            if layer.name != name:
                layer.name = name
    if compiled_with is not None:
        made.compile(**compiled_with)
    return made


class _Maker:
    """Stands for a class of the notebook: leaves out what Keras notes of every layer and the class does not take.

    Most classes do not: Keras asks for `**kwargs` only once a model is loaded.
    """

    def __init__(self, kind: Any, given: list[keras_arguments.Arguments]) -> None:
        self._kind = kind
        self._given = given
        self.__name__ = kind.__name__

    def __repr__(self) -> str:
        return repr(self._kind)

    def from_config(self, config: dict[str, Any]) -> Any:
        """An object of the class, of the same types."""
        import keras

        kind = self._kind
        left = frozenset[str]()
        if keras_private.is_kerass(kind.from_config) and not issubclass(kind, keras.Sequential):
            takes = inspect.signature(kind).parameters
            if all(each.kind is not each.VAR_KEYWORD for each in takes.values()):
                left = keras_arguments.OF_EVERY_LAYER - takes.keys()
        config = {**config}
        number = config.pop(keras_arguments.NUMBER, None)
        arguments = {} if number is None else self._given[number]
        policy = config.get("dtype") if "dtype" in left else None
        with keras_private.policy_meanwhile(policy) if policy else nullcontext():
            kept = {key: config[key] for key in config if key not in left}
            made = kind.from_config({**kept, **arguments})
        keras_arguments.check(made, arguments)
        return made
