"""How models, layers, optimizers and all else that Keras saves travel: as Keras saves them, with what is not Keras's own.

Keras finds classes and functions of others by the names under which they are registered; a notebook's are registered
in the notebook at most.
"""

from __future__ import annotations

import inspect
import io
import pickle
import zipfile
from collections.abc import Mapping
from typing import Any

from skyward_nb.compat import keras_private

_OF_EVERY_LAYER = ("name", "trainable", "dtype")
_METADATA = "metadata.json"


def keras_object(saved: Any) -> Any:
    """A model, layer or optimizer as Keras saves it, with the classes and functions that Keras does not have itself.

    Without the time, so that equal ones are equal bytes: a model would count as changed a second later, and take the
    place of the one that ranks have trained.
    """
    own: dict[str, Any] = {}
    with keras_private.noting_names(own):
        make, (archive,) = saved.__reduce__()
    dateless = io.BytesIO()
    with zipfile.ZipFile(archive) as dated, zipfile.ZipFile(dateless, "w") as plain:
        # The metadata has the time, and a version of Keras; loading takes no notice of it.
        for name in (each for each in dated.namelist() if each != _METADATA):
            plain.writestr(zipfile.ZipInfo(name), dated.read(name))
    data = pickle.PickleBuffer(dateless.getbuffer())
    return _make_keras, (make.__self__, make.__name__, data, own)


def _make_keras(kind: type, maker: str, archive: Any, own: Mapping[str, Any]) -> Any:
    import keras

    for name, each in own.items():
        package, registered, rest = name.partition(">")
        if registered and keras.saving.get_registered_object(name) is not each:
            keras.saving.register_keras_serializable(package, rest)(each)
    makers = {
        name: _Maker(each) if isinstance(each, type) and hasattr(each, "from_config") else each
        for name, each in own.items()
    }
    with keras.saving.custom_object_scope(makers):
        return getattr(kind, maker)(io.BytesIO(archive))


class _Maker:
    """Stands for a class of the notebook: leaves out what Keras notes of every layer and the class does not take.

    Most classes do not: Keras asks for `**kwargs` only once a model is loaded.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def from_config(self, config: dict[str, Any]) -> Any:
        """An object of the class, frozen where it was."""
        takes = inspect.signature(self._kind).parameters
        left = {key for key in _OF_EVERY_LAYER if key not in takes}
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes.values()):
            left.clear()
        made = self._kind.from_config({key: config[key] for key in config if key not in left})
        if "trainable" in left and config.get("trainable") is False:
            made.trainable = False
        return made
