"""How models, layers, optimizers and all else that Keras saves travel: as Keras saves them, with what is not Keras's own.

Keras finds classes and functions of others by the names under which they are registered; a notebook's are registered
in the notebook at most. So they get names for the journey, and come along.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from skyward_nb.compat import keras_private, keras_states_private
from skyward_nb.pickling import keras_arguments, keras_compile
from skyward_nb.pickling.argument_flow import OF_EVERY_LAYER
from skyward_nb.pickling.keras_values import Since

_METADATA = "metadata.json"
_HAS_BEGUN = "skyward_nb: its optimizer has begun"
"""In the config of a compiled model: whether the optimizer that its own `compile` makes has state in the archive."""
_registered: dict[str, Any] = {}
"""What was registered with Keras here for having come."""


def keras_object(saved: Any) -> Any:
    """A model, layer or optimizer as Keras saves it, with the classes and functions that Keras does not have itself.

    Without the time, so that equal ones are equal bytes: a model would count as changed a second later, and take the
    place of the one that ranks have trained.
    """
    import zipfile

    import keras

    if keras_arguments.is_itself_enough(saved):
        return object.__new__, (type(saved),), saved.__getstate__()
    is_optimizer = isinstance(saved, keras.optimizers.Optimizer)
    state = keras_states_private.state_of(saved) if is_optimizer else None
    if isinstance(saved, keras.metrics.Metric):
        state = keras_states_private.counted_by(saved)
    keras_private.write_without_importing_tensorflow()
    own: dict[str, Any] = {}
    registered: dict[str, Any] = {}
    compiled = keras_compile.of_own_compile(saved)
    with (
        keras_private.naming_objects(own, registered),
        keras_arguments.written_by_number(saved) as given,
        _compiled_apart(saved, compiled),
        # Keras gives state to no optimizer that does not know its variables yet.
        keras_states_private.without_state([saved] if is_optimizer else []),
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
    weights = _shapes(saved) if layers else ()
    way = (
        make.__self__,
        make.__name__,
        data,
        own,
        registered,
        known,
        weights,
        given,
        compiled,
        state,
    )
    return _make_keras, way


@contextmanager
def _compiled_apart(model: Any, arguments: keras_arguments.Arguments | None) -> Generator[None]:
    """Meanwhile Keras writes that a model was compiled with these, which travel beside it; None: what it knows itself."""
    import keras

    if arguments is None:
        yield
        return
    optimizers = [
        each for each in arguments.values() if isinstance(each, keras.optimizers.Optimizer)
    ]
    made = keras_states_private.optimizer_of(model)
    is_given = any(
        each is one for each in optimizers for one in keras_states_private.with_inner(made)
    )
    config = {
        keras_arguments.NUMBER: 0,
        _HAS_BEGUN: made is not None and made.built and not is_given,
    }
    with (
        keras_private.compile_config_of(model, config),
        keras_states_private.without_state(optimizers),
    ):
        yield


def _make_keras(
    kind: type,
    maker: str,
    archive: Any,
    own: Mapping[str, Any],
    registered: Mapping[str, Any],
    known: tuple[tuple[str, bool], ...],
    weights: tuple[tuple[int, ...], ...],
    given: list[Any],
    compiled: keras_arguments.Arguments | None,
    state: list[Any] | None,
) -> Any:
    import keras

    keras_private.write_without_importing_tensorflow()  # some layers write their configs as they are made
    for name, each in registered.items():
        # Not what this process has registered itself.
        if keras.saving.get_registered_object(name) in (None, _registered.get(name)):
            package, _, rest = name.partition(">")
            _registered[name] = keras.saving.register_keras_serializable(package, rest)(each)

    with (
        keras_private.lending() as lend,
        keras_states_private.silent_on_state() if state is not None else nullcontext(),
    ):
        makers = {
            name: _Maker(each, given, _way_to_compile(compiled), lend)
            if isinstance(each, type) and hasattr(each, "from_config")
            else each
            for name, each in own.items()
        }
        parts = keras_arguments.layers_in([each for each in given if isinstance(each, dict)])
        with keras.saving.custom_object_scope(makers), keras_states_private.weights_apart(parts):
            made = getattr(kind, maker)(io.BytesIO(archive))
    # Keras keeps that of its own layers, but not of all that a class of the notebook makes.
    layers = keras_private.layers_of(made)
    if known and sorted(_shapes(made)) != sorted(weights):
        raise ValueError(
            f"{type(made).__name__} came without all of its weights, as Keras cannot build it before it is called: give "
            "it a build() that builds the layers in it, or make it on the ranks"
        )
    if len(layers) == len(known):
        for layer, (name, trains) in zip(layers, known, strict=True):
            if layer.trainable is not trains:
                layer.trainable = trains
            if layer.name != name:
                layer.name = name
    if isinstance(made, keras.metrics.Metric):
        keras_states_private.count_on(made, state or [])
    elif state is not None:
        keras_states_private.restore_once_built(made, state)
    return made


def _shapes(layer: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.shape) for each in layer.weights)


def _way_to_compile(
    arguments: keras_arguments.Arguments | None,
) -> Callable[[Any, Any], None]:
    """The way to compile a model, given it and its config: by its own `compile` with these arguments, or as Keras does."""

    def compiles(model: Any, config: Any) -> None:
        if arguments is None or keras_arguments.NUMBER not in config:
            type(model).compile_from_config(model, config)
            return
        keras_compile.compile_anew(model, arguments)
        if config[_HAS_BEGUN]:
            # It takes its state of the archive: a `compile` of one's own has made it.
            keras_states_private.optimizer_of(model).build(model.trainable_variables)

    return compiles


class _Maker:
    """Stands for a class of the notebook: leaves out what Keras notes of every layer and the class does not take.

    Most classes do not: Keras asks for `**kwargs` only once a model is loaded.
    """

    def __init__(
        self,
        kind: Any,
        given: list[Any],
        compiles: Callable[[Any, Any], None],
        lend: Callable[[Any, str, Callable[[Any], None]], None],
    ) -> None:
        self._kind = kind
        self._given = given
        self._compiles = compiles
        self._lend = lend
        self.__name__ = kind.__name__

    def __repr__(self) -> str:
        return repr(self._kind)

    def from_config(self, config: dict[str, Any]) -> Any:
        """An object of the class, of the same types."""
        import keras

        kind = self._kind
        is_of_layers = keras_arguments.is_of_layers(kind, config)
        left = frozenset[str]()
        if keras_private.is_kerass(kind.from_config) and not issubclass(kind, keras.Sequential):
            takes = keras_arguments.takes_of(kind)
            if takes is not None:
                left = OF_EVERY_LAYER - takes
                if keras_arguments.NUMBER in config and not is_of_layers:
                    left = config.keys() - takes  # they are compared below
        config = {**config}
        number = config.pop(keras_arguments.NUMBER, None)
        fixed = config.pop(keras_arguments.FIXED, ())
        build = config.pop(keras_arguments.BUILD, None)
        arguments = {} if number is None else self._given[number]
        if not isinstance(arguments, (dict, Since)):
            return arguments
        policy = config.get("dtype") if "dtype" in left else None
        with keras_private.policy_meanwhile(policy) if policy else nullcontext():
            out = left if is_of_layers else {*left, *fixed}
            kept = {key: config[key] for key in config if key not in out}
            made = keras_arguments.make(kind, kept, arguments)
        if number is not None and keras_arguments.says_what_it_is(made, config):
            keras_arguments.check_passed_on(made, config, kept.keys())
        if isinstance(made, keras.Model):
            self._lend(made, "compile_from_config", lambda config: self._compiles(made, config))
        if build is not None:
            self._see_it_built(made, *self._given[build])
        return made

    def _see_it_built(self, made: Any, own: Any, within: list[Any]) -> None:
        """Have layers within an object built, once Keras has built the object itself, if it is to."""
        if own and not made.built:
            self._lend(
                made,
                "build_from_config",
                lambda config: keras_private.build_again(made, config, within),
            )
        else:
            keras_private.build_within(made, within)
