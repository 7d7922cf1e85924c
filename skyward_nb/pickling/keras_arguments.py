"""Arguments of models and layers that Keras does not keep: those that stand in attributes of their names go along.

Keras makes an object anew of its `get_config()`. Where a class has none, it notes arguments that are numbers and text,
of a model none; so a model of an encoder and a decoder, `self.encoder = encoder`, cannot be made by Keras.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from skyward_nb.compat import keras_private
from skyward_nb.pickling.process_bound import Unpicklable

OF_EVERY_LAYER = frozenset(("name", "trainable", "dtype", "reduction"))
NUMBER = "skyward_nb arguments"
"""In a config, the number of the arguments that belong there."""

Arguments = dict[str, Any]
_COMPARED = (int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


def own_parameters(made: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those parameters of a class or method that are not every layer's, nor for whatever is given."""
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        each
        for each in inspect.signature(made).parameters.values()
        if each.kind not in several and each.name not in OF_EVERY_LAYER
    ]


@contextmanager
def written_by_number(saved: Any) -> Generator[list[Arguments]]:
    """Meanwhile Keras writes, in the place of arguments that it has not kept, the number of these in the list.

    Raises `Unpicklable` for a model of which one is in no attribute of its name: it would be made with another one.
    """
    found = [(each, _forgotten(each)) for each in keras_private.layers_of(saved)]
    forgetful = [(each, arguments) for each, arguments in found if arguments is not None]
    configs = [(each, {NUMBER: number}) for number, (each, _) in enumerate(forgetful)]
    with keras_private.configured(configs):
        yield [arguments for _, arguments in forgetful]


def _forgotten(layer: Any) -> Arguments | None:
    """The arguments of a model or layer that Keras has not kept; None where it knows how to make it."""
    import keras

    kind = type(layer)
    if keras_private.is_kerass(kind) or not keras_private.is_kerass(kind.get_config):
        return None
    is_model = isinstance(layer, keras.Model)
    if not is_model and not keras_private.lacks_arguments(layer):
        return None
    names = [each.name for each in own_parameters(kind)]
    # What Keras itself means by a name, such as `layers`, is no argument.
    lost = [name for name in names if hasattr(keras.Model, name) or not hasattr(layer, name)]
    if lost and is_model:
        raise Unpicklable(
            f"Keras makes models anew by their get_config(), and {kind.__name__} has none that says its "
            f"{', '.join(lost)}: give it one, keep each as an attribute of its name, or make it on the ranks"
        )
    return {name: _plain(getattr(layer, name)) for name in names} if names and not lost else None


def _plain(value: Any) -> Any:
    """A list, dictionary or set that Keras watches, as it was given."""
    for kind in (list, dict, set):
        if isinstance(value, kind) and keras_private.is_kerass(type(value)):
            return kind(value)
    return value


def check(made: Any, arguments: Arguments) -> None:
    """Raise `ValueError` if an object keeps an argument otherwise than it was given it: it is another one then."""
    for name, given in arguments.items():
        kept = _plain(getattr(made, name, None))
        if kept is not given and not (isinstance(given, _COMPARED) and kept == given):
            raise ValueError(
                f"{type(made).__name__} keeps its {name} otherwise than it is given it: give it a get_config() that "
                "says what it was given"
            )


def of_own_compile(model: Any) -> Arguments | None:
    """What a `compile` of the model's own class was given, where it is in attributes of the same names."""
    kind: Any = type(model)
    if not getattr(model, "compiled", False):
        return None
    compiles = kind.compile
    is_plain = keras_private.is_kerass(compiles)
    if is_plain or not keras_private.is_kerass(kind.compile_from_config):
        return None
    own = own_parameters(compiles)[1:]
    if any(each.default is each.empty and not hasattr(model, each.name) for each in own):
        return None
    return {each.name: getattr(model, each.name) for each in own if hasattr(model, each.name)}
