"""Reducers for data sets: a pipeline of `tf.data`, a loader of torch."""

from __future__ import annotations

import pickle
from itertools import chain
from typing import Any

from skyward_nb.compat import tensorflow_private, torch_models_private
from skyward_nb.pickling.process_bound import Unpicklable

_CALLS_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def pipeline(dataset: Any) -> Any:
    """A `tf.data.Dataset` as the graph of its steps with the tensors in it; it begins at its beginning."""
    import tensorflow as tf

    try:
        graph = tensorflow_private.graph_of(dataset)
    except (tf.errors.OpError, ValueError) as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        raise Unpicklable(f"TensorFlow cannot write it down ({why})") from error
    if not graph.node:  # TensorFlow has logged that, and given nothing
        raise Unpicklable("it has more than 2 GB, which TensorFlow cannot write down")
    if any(node.op in _CALLS_PYTHON for node in _nodes_of(graph)):
        raise Unpicklable(
            "it calls Python of its process (from_generator, py_function, numpy_function)"
        )
    # In one order: what is there already is known by its bytes.
    written = pickle.PickleBuffer(graph.SerializeToString(deterministic=True))
    # Such as the `class_names` that Keras sets.
    own = {name: value for name, value in vars(dataset).items() if not name.startswith("_")}
    return _make_pipeline, (written, dataset.element_spec, dataset.options()), own


def _nodes_of(graph: Any) -> Any:
    return chain(graph.node, *(function.node_def for function in graph.library.function))


def _make_pipeline(graph: Any, element_spec: Any, options: Any) -> Any:
    return tensorflow_private.dataset_of(bytes(graph), element_spec).with_options(options)


def loader(loader: Any) -> Any:
    """A `DataLoader` without the processes that it keeps from one pass to the next; it starts others."""
    reduced = loader.__reduce_ex__(5)
    state = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
    if not isinstance(state, dict):
        return reduced
    return *reduced[:2], torch_models_private.without_workers(state), *reduced[3:]
