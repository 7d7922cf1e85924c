"""Arguments of models and layers that Keras does not keep: those that stand in attributes of their names go along.

Keras makes an object anew of its `get_config()`. Where a class has none, it notes arguments that are numbers and text,
of a model none; so a model of an encoder and a decoder, `self.encoder = encoder`, cannot be made by Keras. Nor does it
call a `compile` of a class's own again, for two optimizers, say.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
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
_SEVERAL = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a method takes, but for itself. The signature of a class may be that of Keras's `__new__`."""
    return list(inspect.signature(method).parameters.values())[1:]


@contextmanager
def written_by_number(saved: Any) -> Generator[list[Arguments]]:
    """Meanwhile Keras writes, in the place of arguments that it has not kept, the number of these in the list.

    Raises `Unpicklable` for a model of which one is in no attribute of its name: it would be made with another one.
    """
    found = [(each, _forgotten(each)) for each in keras_private.layers_of(saved)]
    forgetful = [(each, arguments) for each, arguments in found if arguments is not None]
    configs = [(each, {NUMBER: number}) for number, (each, _) in enumerate(forgetful)]
    with keras_private.configured(configs):
        for layer, arguments in forgetful:
            config = layer.get_config()
            # A network of layers, and what is derived from a layer of Keras's own, says other things of itself.
            if NUMBER not in config and (lost := arguments.keys() - config.keys()):
                raise _unknown(layer, sorted(lost), "give it one, or make it on the ranks")
        yield [arguments for _, arguments in forgetful]


def _unknown(layer: Any, lost: list[str], advice: str) -> Unpicklable:
    return Unpicklable(
        f"Keras makes models and layers anew by their get_config(), and {type(layer).__name__} has none that says its "
        f"{', '.join(lost)}: {advice}"
    )


def _forgotten(layer: Any) -> Arguments | None:
    """The arguments of a model or layer that Keras has not kept; None where it knows how to make it."""
    import keras

    kind = type(layer)
    if any(keras_private.is_kerass(each) for each in (kind, kind.__init__)):
        return None
    if not keras_private.is_kerass(kind.get_config) or keras_private.is_plain_network(layer):
        return None
    is_model = isinstance(layer, keras.Model)
    if not is_model and not keras_private.lacks_arguments(layer):
        return None
    taken = parameters(kind.__init__)
    several = [each for each in taken if each.kind in _SEVERAL]
    names = [
        each.name for each in taken if each.kind not in _SEVERAL and each.name not in OF_EVERY_LAYER
    ]
    # What Keras itself means by a name, such as `layers`, is no argument.
    lost = [name for name in names if hasattr(keras.Model, name) or not hasattr(layer, name)]
    lost += [_starred(each) for each in several if not _is_passed_on(kind.__init__, each.name)]
    if lost and is_model:
        advice = "give it one, keep each as an attribute of its name, or make it on the ranks"
        raise _unknown(layer, lost, advice)
    if not names or lost:
        return None
    arguments = {name: _plain(getattr(layer, name)) for name in names}
    _forbid_shared_layers(layer, arguments)
    return arguments


def _starred(parameter: inspect.Parameter) -> str:
    return f"{'*' if parameter.kind is parameter.VAR_POSITIONAL else '**'}{parameter.name}"


def _is_passed_on(made: Callable[..., Any], several: str) -> bool:
    """Whether an `__init__` gives its `*args` or `**kwargs` to that of its base, and keeps nothing of them itself.

    Where its source is not to be had, it is taken to: most do.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
    except (OSError, TypeError, SyntaxError):
        return True
    harmless: list[ast.expr] = []
    for each in ast.walk(tree):
        match each:
            case ast.Call(func=ast.Attribute(attr="__init__")):
                harmless += [arg.value for arg in each.args if isinstance(arg, ast.Starred)]
                harmless += [keyword.value for keyword in each.keywords if keyword.arg is None]
            case ast.Call(
                func=ast.Attribute(value=asked, attr="setdefault" | "pop" | "get"),
                args=[ast.Constant(value=name), *_],
            ) if name in OF_EVERY_LAYER:
                harmless.append(asked)
            case ast.If(test=asked):
                harmless.append(asked)
            case _:
                pass
    uses = [each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id == several]
    return all(any(each is one for one in harmless) for each in uses)


def _forbid_shared_layers(layer: Any, arguments: Arguments) -> None:
    """Raise `Unpicklable` where two arguments have a layer in common: each would come with its own."""
    owners: dict[int, tuple[str, Any]] = {}
    for name, value in arguments.items():
        for given in _given_layers(value):
            for each in keras_private.layers_of(given):
                if each.built and not each.variables:
                    continue
                other, owner = owners.setdefault(id(each), (name, given))
                if owner is not given:
                    raise Unpicklable(
                        f"{other} and {name} of {type(layer).__name__} share the layer {each.name!r}, and would come "
                        "with one each: make the model on the ranks, or give it a get_config()"
                    )


def _given_layers(value: Any) -> list[Any]:
    import keras

    if isinstance(value, keras.layers.Layer):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [layer for each in value for layer in _given_layers(each)]
        if isinstance(value, (list, tuple))
        else []
    )


def _plain(value: Any) -> Any:
    """Lists, dictionaries and sets that Keras watches, as they were given, at any depth."""
    if type(value) is tuple:
        return tuple(_plain(each) for each in value)
    if not keras_private.is_kerass(type(value)):
        return value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return set(value) if isinstance(value, set) else value


def check(made: Any, arguments: Arguments) -> None:
    """Raise `ValueError` if an object keeps an argument otherwise than it was given it: it is another one then."""
    for name, given in arguments.items():
        if not _is_kept(_plain(getattr(made, name, None)), given):
            raise ValueError(
                f"{type(made).__name__} keeps its {name} otherwise than it is given it: give it a get_config() that "
                "says what it was given"
            )


def _is_kept(kept: Any, given: Any) -> bool:
    # Arrays in a list do not say whether they are equal.
    with contextlib.suppress(Exception):
        return kept is given or (isinstance(given, _COMPARED) and bool(kept == given))
    return False


def of_own_compile(model: Any) -> Arguments | None:
    """What a `compile` of the model's own class was given; None if it has none, or that is not known."""
    import keras

    if not isinstance(model, keras.Model) or not model.compiled:
        return None
    kind: Any = type(model)
    compiles = kind.compile
    if keras_private.is_kerass(compiles) or not keras_private.is_kerass(kind.compile_from_config):
        return None
    own = parameters(compiles)
    found = {each.name: _given_to_compile(model, each.name) for each in own}
    if any(each.kind in _SEVERAL for each in own) or any(
        each is _UNKNOWN for each in found.values()
    ):
        return None
    return found


_UNKNOWN = object()


def _given_to_compile(model: Any, name: str) -> Any:
    """One argument of a model's own `compile`, as it is in an attribute, or was given to that of Keras; or `_UNKNOWN`."""
    import keras

    # Of Keras's own, such as `metrics`, what is in an attribute is made of what was given.
    if hasattr(model, name) and not hasattr(keras.Model, name):
        return _plain(getattr(model, name))
    return keras_private.compiled_with(model).get(name, _UNKNOWN)


def compile_anew(model: Any, arguments: Arguments) -> None:
    """Call the own `compile` of a model; raises `ValueError` if it keeps something otherwise than it was given it."""
    with keras_private.taking_state(model):
        model.compile(**arguments)
    for name, given in arguments.items():
        if not _is_kept(_given_to_compile(model, name), given):
            raise ValueError(
                f"{type(model).__name__} keeps its {name} otherwise than compile() is given it: give it "
                "get_compile_config() and compile_from_config(), or compile it on the ranks"
            )
