"""Arguments of models and layers that Keras does not keep: those that stand in attributes of their names go along.

Keras makes an object anew of its `get_config()`. Where a class has none, it notes arguments that are numbers and text,
of a model none; so a model of an encoder and a decoder, `self.encoder = encoder`, cannot be made by Keras.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from skyward_nb.compat import keras_private, keras_states_private
from skyward_nb.pickling.argument_flow import (
    OF_EVERY,
    OF_EVERY_LAYER,
    asked_of_several,
    given_to_base,
    is_passed_on,
)
from skyward_nb.pickling.keras_values import Since, as_lists, is_data, is_kept, plain, value_of
from skyward_nb.pickling.process_bound import Unpicklable

NUMBER = "skyward_nb arguments"
"""In a config, the number of the arguments that belong there."""
FIXED = "skyward_nb fixed"
"""In a config, what the class itself gives to Keras's: `super().__init__(units, activation="relu", **kwargs)`."""
BUILD = "skyward_nb build"
"""In a config, the number of what says how a layer and those within it were built."""

Arguments = dict[str, Any]
_RATE = "learning_rate"
SEVERAL = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _since(layer: Any, noted: Mapping[str, Any]) -> Since:
    names = sorted(noted.keys() - OF_EVERY_LAYER)
    now = {
        each: value_of(layer, each)
        for name in names
        for each in (name, f"_{name}")
        if each in vars(layer) or getattr(getattr(type(layer), each, None), "fset", None)
    }
    given = {name: each for name, each in noted.items() if isinstance(each, (tuple, list, dict))}
    return Since(given, {name: value for name, value in now.items() if is_data(value)})


def parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a method takes, but for itself. The signature of a class may be that of Keras's `__new__`."""
    return list(inspect.signature(method).parameters.values())[1:]


@contextmanager
def written_by_number(saved: Any) -> Generator[list[Any]]:
    """Meanwhile Keras writes, in the place of what it has not kept of an object, the number of that in the list.

    Of models, layers, metrics and optimizers these are the arguments; what has no variables goes along itself. Raises
    `Unpicklable` for one with an argument in no attribute of its name: it would be made with another one.
    """
    import keras

    given: list[Any] = []
    owners: list[tuple[Any, Arguments]] = []
    readers = 0
    """How many `get_config` of the notebook's code are at work, and may read what others write."""

    def config_of(each: Any, ask: Callable[[Any], Any]) -> Any:
        if keras_private.is_kerass(type(each)):
            return ask(each)
        nonlocal readers
        is_read, reads = readers > 0, keras_private.has_config_of_its_own(type(each))
        readers += reads
        try:
            config = asked(each, ask)
        finally:
            readers -= reads
        if not is_read and isinstance(each, keras.layers.Layer) and keras_private.parts_of(each):
            given.append(keras_private.build_of(each))
            config = {**config, BUILD: len(given) - 1}
        return config

    def asked(each: Any, ask: Callable[[Any], Any]) -> Any:
        if not _is_made_in_own_way(type(each)):
            return ask(each)
        number = len(given)
        if is_itself_enough(each):
            given.append(each)
            return {NUMBER: number}
        if (noted := _noted_by_keras(each)) is not None:
            given.append(_since(each, noted))
            return {**ask(each), NUMBER: number, FIXED: _fixed(type(each))}
        given.append({})
        with keras_private.configured(each, {NUMBER: number}):
            config = ask(each)
        given[number] = _forgotten(each, config)
        owners.append((each, given[number]))
        apart.enter_context(keras_states_private.weights_apart(layers_in(given[number])))
        return {**config, NUMBER: number, FIXED: _fixed(type(each))}

    with ExitStack() as apart, keras_private.asked_by(config_of):
        yield given
    for owner, arguments in owners:
        _forbid_layers_in_two_places(saved, owner, arguments)


def layers_in(arguments: Any) -> list[Any]:
    """All layers within what was given: their weights come with them."""
    return [part for each in _given_layers(arguments) for part in keras_private.layers_of(each)]


def _is_made_in_own_way(kind: Any) -> bool:
    """Whether a class of the notebook has an `__init__`, and nothing as new that says what it was given."""
    if any(keras_private.is_kerass(each) for each in (kind, kind.__init__)):
        return False
    owners = [_owner(kind, name) for name in ("__init__", "get_config")]
    is_kerass_way = keras_private.is_kerass(getattr(kind, "get_config", None))
    return is_kerass_way or (hasattr(kind, "get_config") and owners[0] < owners[1])


def _owner(kind: type, name: str) -> int:
    """How far up the class is that has this."""
    return next((at for at, each in enumerate(kind.__mro__) if name in vars(each)), -1)


def is_itself_enough(made: Any) -> bool:
    """Whether this is of a class of the notebook's own that has no variables, such as a loss: all it has are attributes."""
    import keras

    with_variables = keras.layers.Layer, keras.metrics.Metric, keras.optimizers.Optimizer
    return _is_made_in_own_way(type(made)) and not isinstance(made, with_variables)


def _noted_by_keras(layer: Any) -> Mapping[str, Any] | None:
    """How a layer was made, as Keras notes it where arguments are numbers and text."""
    import keras

    is_layer = isinstance(layer, keras.layers.Layer) and not isinstance(layer, keras.Model)
    if not is_layer or type(layer).get_config is not keras.layers.Layer.get_config:
        return None
    return keras_private.noted_of(layer)


def _unknown(made: Any, lost: list[str], advice: str) -> Unpicklable:
    return Unpicklable(
        f"Keras makes such objects anew by their get_config(), and {type(made).__name__} has none that says its "
        f"{', '.join(lost)}: {advice}"
    )


def _forgotten(made: Any, config: Mapping[str, Any]) -> Arguments:
    """The arguments of an object that are not in the config that Keras writes of it."""
    import keras

    taken, lost = _taken(type(made), config)
    names = [each.name for each in taken if each.name not in {*OF_EVERY, *config}]
    if "input_layers" in config:
        names = [each for each in names if each not in ("inputs", "outputs")]
    defaults = {each.name: each.default for each in taken}
    lost = [each for each in names if not _is_in_attribute(made, each, defaults[each])] + lost
    if lost:
        advice = "give it one, keep each as an attribute of its name, or make it on the ranks"
        raise _unknown(made, lost, advice)
    if isinstance(made, keras.Sequential) and NUMBER not in config:
        takes = {each.name: each.kind for each in parameters(type(made).__init__)}
        if names or not ("name" in takes or inspect.Parameter.VAR_KEYWORD in takes.values()):
            advice = "give it one, or make it on the ranks"
            raise _unknown(made, names or ["layers"], advice)
    arguments = {name: plain(getattr(made, _attribute(made, name))) for name in names}
    if isinstance(made, keras.layers.Layer):
        _forbid_shared_layers(made, arguments)
    return arguments


def _is_own(init: Any) -> bool:
    """Whether an `__init__` is of the notebook or a package, and not Keras's, nor that of `object`."""
    return inspect.isfunction(init) and not keras_private.is_kerass(init)


def _inits(kind: type) -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
    """The `__init__` of a class, and those of its bases that are not Keras's; each with the next one."""
    inits = [vars(each)["__init__"] for each in kind.__mro__ if "__init__" in vars(each)]
    return [*itertools.takewhile(lambda both: _is_own(both[0]), itertools.pairwise(inits))]


def _passed(made: Callable[..., Any], base: Callable[..., Any]) -> set[str]:
    """The names of what an `__init__` itself gives to the next one."""
    return given_to_base(made, [each.name for each in parameters(base)])


def _fixed(kind: type) -> list[str]:
    """What a class itself gives to its base, and does not take."""
    if not (inits := _inits(kind)):
        return []
    made, base = inits[0]
    return sorted(
        _passed(made, base) - {each.name for each in parameters(made)} - asked_of_several(made)
    )


def takes_of(kind: type) -> set[str] | None:
    """The names that a class takes, also by `**kwargs` for its bases; None where Keras's own gets what is left of these."""
    found: set[str] = set()
    for made, _ in _inits(kind):
        found |= {each.name for each in parameters(made)}
        if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters(made)):
            return found
    return None


def _taken(kind: type, config: Mapping[str, Any]) -> tuple[list[inspect.Parameter], list[str]]:
    """What a class takes by name, also for classes that it passes `*args` and `**kwargs` on to; and what is lost of these."""
    named: dict[str, inspect.Parameter] = {}
    given: set[str] = set()
    known = {*OF_EVERY_LAYER, *config}
    for made, base in _inits(kind):
        own = parameters(made)
        several = [each for each in own if each.kind in SEVERAL]
        alone = [each for each in own if each.kind not in SEVERAL and each.name not in given]
        named = {**{each.name: each for each in alone}, **named}
        takes = [each.name for each in parameters(base)]
        lost = [
            _starred(each) for each in several if not is_passed_on(made, each.name, takes, known)
        ]
        if lost:
            return list(named.values()), lost
        if not several:
            break
        given = _passed(made, base) - asked_of_several(made)
    return list(named.values()), []


def _attribute(made: Any, name: str) -> str:
    """The attribute that an argument is kept in."""
    return name if hasattr(made, name) else f"_{name}"


def _is_in_attribute(made: Any, name: str, default: Any) -> bool:
    """Whether an argument is in an attribute of its name, as far as that can be told."""
    bases: list[Any] = [each for each in type(made).__mro__ if keras_private.is_kerass(each)]
    # What Keras itself means by a name, such as `layers`, is no argument; nor is what torch means by one.
    if (
        name == "training"
        or any(hasattr(each, name) for each in bases)
        or not hasattr(made, _attribute(made, name))
    ):
        return False
    # `self.dropout = Dropout(dropout)` is what was made of it.
    value = getattr(made, _attribute(made, name))
    return not (isinstance(default, (int, float, str, bytes)) and _given_layers(value))


def _starred(parameter: inspect.Parameter) -> str:
    return f"{'*' if parameter.kind is parameter.VAR_POSITIONAL else '**'}{parameter.name}"


def _may_be_trained(layer: Any) -> bool:
    """Whether a layer has weights, or will have: else it may come twice."""
    return not layer.built or bool(layer.weights)


def _forbid_shared_layers(layer: Any, arguments: Arguments) -> None:
    """Raise `Unpicklable` where two arguments have a layer in common: each would come with its own."""
    owners: dict[int, tuple[str, Any]] = {}
    for name, value in arguments.items():
        for given in _given_layers(value):
            for each in keras_private.layers_of(given):
                if not _may_be_trained(each):
                    continue
                other, owner = owners.setdefault(id(each), (name, given))
                if owner is not given:
                    raise Unpicklable(
                        f"{other} and {name} of {type(layer).__name__} share the layer {each.name!r}, and would come "
                        "with one each: make the model on the ranks, or give it a get_config()"
                    )


def _forbid_layers_in_two_places(saved: Any, owner: Any, arguments: Arguments) -> None:
    """Raise `Unpicklable` where a layer that was given to one part of a model is in another one, too."""
    outside: set[int] = set()
    left = [] if owner is saved else [saved]
    while left:
        each = left.pop()
        if each is not owner and id(each) not in outside:
            outside.add(id(each))
            left += keras_private.parts_of(each)
    for each in layers_in(arguments):
        if id(each) in outside and _may_be_trained(each):
            raise Unpicklable(
                f"the layer {each.name!r} was given to {type(owner).__name__} and is elsewhere in "
                f"{type(saved).__name__}, too, and would come twice: make the model on the ranks"
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


def make(kind: Any, config: Mapping[str, Any], arguments: Arguments | Since) -> Any:
    """An object of its config and these arguments; raises `ValueError` where one of them is not what it was given."""
    given = arguments.given if isinstance(arguments, Since) else arguments
    try:
        # What an `__init__` does to the layers that it is given, such as to set their weights, is done.
        with keras_states_private.values_kept(_given_layers(given)):
            made = _made_of(kind, {**config, **given})
    except Exception as error:
        names = ", ".join(dict.fromkeys((*given, *config))) or "alone"
        raise ValueError(
            f"{kind.__name__} cannot be made again of its attributes {names}: give it a get_config() that says what "
            f"it was given ({type(error).__name__}: {error})"
        ) from error
    if not isinstance(arguments, Since):
        check(made, given)
        return made
    for name, value in arguments.now.items():
        if not is_kept(value_of(made, name), value):
            setattr(made, name, value)
    return made


def _made_of(kind: Any, config: Mapping[str, Any]) -> Any:
    import keras

    try:
        return kind.from_config(config)
    except TypeError:
        # What Keras's own class adds there, such as a `Dense` its quantization, this one may not take.
        plainly: Any = keras.layers.Layer.from_config
        way = kind.from_config
        if not keras_private.is_kerass(way) or getattr(way, "__func__", None) is plainly.__func__:
            raise
        return plainly.__func__(kind, config)


def is_of_layers(kind: type, config: Mapping[str, Any]) -> bool:
    """Whether Keras writes the layers of objects of this class, as of a `Sequential`: other classes may take `layers`."""
    import keras

    return issubclass(kind, keras.Model) and "layers" in config


def says_what_it_is(made: Any, config: Mapping[str, Any]) -> bool:
    """Whether an object is derived from one of Keras's that has a config of its own, such as a `Dense`."""
    import keras

    return not is_of_layers(type(made), config) and type(made).get_config not in (
        keras.layers.Layer.get_config,
        keras.Model.get_config,
    )


def check_passed_on(made: Any, config: Mapping[str, Any], given: Collection[str]) -> None:
    """Raise `ValueError` if Keras's own class below has been given other numbers and texts than there are in the config, or more, or less.

    The rate of an optimizer may have been set since, and a layer may have got what its `build` or `adapt` makes: bounds, and axes,
    which are compared where it was `given` them.
    """
    import keras

    if isinstance(made, keras.optimizers.Optimizer) and isinstance(config.get(_RATE), float):
        made.learning_rate = config[_RATE]
    now = made.get_config()
    for name, value in config.items():
        there = now.get(name, value)
        if isinstance(value, (int, float, str)):
            is_other = there != value
        elif not (isinstance(value, (list, tuple)) and is_data([value, there])):
            is_other = (there is None) is not (value is None)
        elif is_other := bool(there):
            is_compared = name in given or "ax" not in name
            is_other = is_compared and as_lists(there) != as_lists(value)
        else:
            with suppress(AttributeError):  # a property
                setattr(made, _attribute(made, name), value)
        if is_other and name not in OF_EVERY_LAYER:
            raise ValueError(
                f"{type(made).__name__} gives its {name} on otherwise than it is given it: give it a get_config() "
                "that says what it was given"
            )


def check(made: Any, arguments: Arguments) -> None:
    """Raise `ValueError` if an object keeps an argument otherwise than it was given it: it is another one then."""
    for name, given in arguments.items():
        if not is_kept(plain(getattr(made, _attribute(made, name), None)), given):
            raise ValueError(
                f"{type(made).__name__} keeps its {name} otherwise than it is given it: give it a get_config() that "
                "says what it was given"
            )
