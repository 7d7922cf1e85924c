"""Files and functions of torch, JAX, TensorFlow and tf_keras by which tracebacks are known: who waits, and what is not to be torn.

Where a package has another one, a hang is told without the collective's name, or an interrupt tears what it did not.

Seen with torch 2.13.0, jax 0.10.2, tensorflow 2.20.0, tf_keras 2.20.1.
"""

from __future__ import annotations

NATIVE = {"wait": "work.wait", "get": "store.get", "block_until_ready": "block_until_ready"}
"""Methods of native objects that user code calls itself, and what they are called then."""
A_COMPUTATION_OF_JAX = "a computation of JAX"
COMPILED = "PjitFunction"
"""What a function that JAX has compiled is an instance of; a call of it may wait for peers."""

TENSORFLOW = "/tensorflow/python/"
TENSORFLOW_ENGINE = (
    (f"{TENSORFLOW}eager/execute.py", "quick_execute"),
    (f"{TENSORFLOW}eager/execute.py", "execute_with_cancellation"),
    (f"{TENSORFLOW}framework/ops.py", "raise_from_not_ok_status"),
    (f"{TENSORFLOW}ops/gen_collective_ops.py", ""),
)
"""Functions in which TensorFlow's Python calls native code, and in which it raises that code's errors."""
STRATEGY = f"{TENSORFLOW}distribute/"
"""Functions in which a strategy waits for threads of its own, by a function in `THREADING`."""
THREADING = "/threading.py", "/multiprocessing/pool.py", f"{TENSORFLOW}training/coordinator.py"

SYNC, REDUCERS = "/skyward_nb/runtime/sync.py", "/skyward_nb/pickling/reducers.py"
WAIT = (SYNC, "barrier"), (REDUCERS, "jax_array")
"""Functions of this package that wait by themselves; others in these files wait only in the torch functions that they call."""

PACKAGES = (
    "/torch/distributed/",
    "/torch/nn/parallel/distributed.py",
    "/jax/experimental/multihost_utils.py",
    SYNC,
    REDUCERS,
    TENSORFLOW,
    "/tf_keras/src/",
)
INTERRUPT = "/skyward_nb/node/mailbox.py"
"""Where an interrupt is raised, whatever the thread is in."""
BETWEEN = (
    "/torch/_ops.py",
    "/torch/_compile.py",
    "/torch/utils/",
    "/optree/",
    "/torch/distributed/c10d_logger.py",
    "/torch/nn/modules/module.py",
    "/jax/",
    "/jaxlib/",
    "/contextlib.py",
    "/tensorflow/python/util/traceback_utils.py",
    "/tf_keras/src/utils/traceback_utils.py",
    "/skyward_nb/plugins/",
    INTERRUPT,
)
"""What may lie between the frames of a collective without being one."""

LAUNCHER = "/torch/distributed/launcher/api.py"
LOGGING = "/torch/distributed/c10d_logger.py", "_get_msg_dict"
"""What torch asks of a group to log a collective that is over, or failed: it waits for nobody."""
COMMUNICATION = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/nn/functional.py",
    *PACKAGES[2:5],
)
BACKWARD = "/torch/autograd/graph.py", "_engine_run_backward"
COMPUTING = (
    ("/jax/_src/array.py", ("_value", "block_until_ready", "__array__")),
    ("/jax/_src/interpreters/pxla.py", ("__call__",)),
)
"""Functions in which JAX's Python calls native code to read an array, or to run a compiled function."""
ALIKE = {
    (SYNC, "barrier"): "sky.barrier",
    (SYNC, "mesh"): "sky.mesh",
    (REDUCERS, "jax_array"): A_COMPUTATION_OF_JAX,
    ("/torch/nn/parallel/distributed.py", "__init__"): "DistributedDataParallel",
    ("/torch/nn/parallel/distributed.py", "forward"): "DistributedDataParallel.forward",
    ("/torch/distributed/_functional_collectives.py", "wait_tensor"): "wait_tensor",
    ("/tf_keras/src/engine/training.py", "fit"): "fit",
    ("/tf_keras/src/engine/training.py", "evaluate"): "evaluate",
    ("/tf_keras/src/engine/training.py", "predict"): "predict",
    (f"{TENSORFLOW}distribute/distribute_lib.py", "run"): "strategy.run",
    (f"{TENSORFLOW}distribute/distribute_lib.py", "reduce"): "strategy.reduce",
    (f"{TENSORFLOW}distribute/input_lib.py", "__next__"): "the next batch",
    (f"{TENSORFLOW}ops/variables.py", "__call__"): "tf.Variable",
    (f"{TENSORFLOW}eager/polymorphic_function/polymorphic_function.py", "__call__"): "tf.function",
    (f"{TENSORFLOW}eager/execute.py", "quick_execute"): "tf.function",
    (f"{TENSORFLOW}eager/execute.py", "execute_with_cancellation"): "tf.function",
}
UNTORN = (
    "/jax/_src/",
    "/jax/experimental/",
    "/torch/autograd/grad_mode.py",
    "/torch/utils/_contextlib.py",
    "/torch/amp/autocast_mode.py",
)
"""Code of JAX and torch within which no interrupt is raised."""
