"""What the own `compile` of a model was given: Keras does not call such a one again, for two optimizers, say."""

from __future__ import annotations

from typing import Any

from skyward_nb.compat import keras_private
from skyward_nb.pickling.argument_flow import is_given_on
from skyward_nb.pickling.keras_arguments import SEVERAL, Arguments, parameters
from skyward_nb.pickling.keras_values import UNKNOWN, is_kept, plain


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
    if any(each.kind in SEVERAL for each in own) or any(each is UNKNOWN for each in found.values()):
        return None
    return found


def _given_to_compile(model: Any, name: str) -> Any:
    """One argument of a model's own `compile`, as it is in an attribute, or was given to that of Keras; or `UNKNOWN`."""
    import keras

    known = keras_private.compiled_with(model)
    # Of Keras's own, such as `metrics`, what is in an attribute is made of what was given.
    kept = UNKNOWN if hasattr(keras.Model, name) else plain(getattr(model, name, UNKNOWN))
    if name not in known:
        return kept
    if is_given_on(type(model).compile, name):
        return known[name]
    # Keras says of what it was not given that it was given nothing.
    return UNKNOWN if kept is None else kept


def compile_anew(model: Any, arguments: Arguments) -> None:
    """Call the own `compile` of a model; raises `ValueError` if it keeps something otherwise than it was given it."""
    with keras_private.taking_state(model):
        model.compile(**arguments)
    for name, given in arguments.items():
        if not is_kept(_given_to_compile(model, name), given):
            raise ValueError(
                f"{type(model).__name__} keeps its {name} otherwise than compile() is given it: give it "
                "get_compile_config() and compile_from_config(), or compile it on the ranks"
            )
