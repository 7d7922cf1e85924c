"""Which collective a thread waits in: by frames of other packages written down, and by code of ours."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from skyward_nb.plugins.collectives import (
    called_at,
    error_waited_in,
    frames_of_error,
    frames_of_thread,
    lost_a_computation,
    lost_its_peers,
    waits_in,
)
from skyward_nb.system.thread_frames import looking

TORCH = "/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
LOGGER = f"{TORCH}/distributed/c10d_logger.py"
FUNCTIONAL = f"{TORCH}/distributed/_functional_collectives.py"
GRAPH = f"{TORCH}/autograd/graph.py"
SYNC = "/x/skyward_nb/runtime/sync.py"
TENSORFLOW = "/site-packages/tensorflow/python"
EXECUTE = f"{TENSORFLOW}/eager/execute.py"
FUNCTION = f"{TENSORFLOW}/eager/polymorphic_function/polymorphic_function.py"
HANDLER = (f"{TENSORFLOW}/util/traceback_utils.py", "error_handler")
RUN = (f"{TENSORFLOW}/distribute/distribute_lib.py", "run")
THREAD, WORKERS = "/lib/python3.11/threading.py", "/lib/python3.11/multiprocessing/pool.py"
CELL = ("<cell 1>", "<module>")
MAILBOX = ("/x/skyward_nb/node/mailbox.py", "heed")
SHELL = ("/skyward_nb/node/rank_shell.py", "run")

FRAMES = {
    "nothing": ((), ""),
    "the cell alone": ((CELL, SHELL), ""),
    "a collective": (((C10D, "all_reduce"), (LOGGER, "wrapper"), CELL, SHELL), "all_reduce"),
    "one within one": (
        ((C10D, "all_gather"), (LOGGER, "wrapper"), (C10D, "all_gather_object"), (LOGGER, "wrapper"), CELL),
        "all_gather_object",
    ),
    "a new group": (
        ((C10D, "_new_process_group_helper"), ("/skyward_nb/plugins/torch_plugin.py", "<lambda>"),
         (C10D, "_new_group_with_tag"), (C10D, "new_group"), (LOGGER, "wrapper"), CELL),
        "new_group",
    ),
    "ours": (
        ((C10D, "barrier"), (LOGGER, "wrapper"), (SYNC, "barrier"), CELL),
        "sky.barrier",
    ),
    "a mesh of ours that torch makes": (
        ((C10D, "new_group"), (LOGGER, "wrapper"), (f"{TORCH}/distributed/device_mesh.py", "init_device_mesh"),
         ("/x/skyward_nb/plugins/torch.py", "mesh"), (SYNC, "mesh"), CELL),
        "sky.mesh",
    ),
    "a mesh that TensorFlow has not": (
        (("/x/skyward_nb/plugins/tensorflow.py", "mesh"), (SYNC, "mesh"), CELL), ""
    ),
    "a mesh that JAX makes": (
        (("/site-packages/jax/_src/mesh_utils.py", "make_mesh"), ("/x/skyward_nb/plugins/jax.py", "mesh"),
         (SYNC, "mesh"), CELL),
        "",
    ),
    "a value that is pickled": (
        (("/x/skyward_nb/pickling/reducers.py", "is_torch_tensor"), ("/x/skyward_nb/pickling/pickler.py", "reducer_override"),
         SHELL),
        "",
    ),
    "an array of JAX that is pickled": (
        (("/x/skyward_nb/pickling/reducers.py", "jax_array"), SHELL), "a computation of JAX"
    ),
    "where data is": (((SYNC, "_group"), (SYNC, "data_place"), CELL), ""),
    "averaging": (((GRAPH, "_engine_run_backward"), (f"{TORCH}/_tensor.py", "backward"), CELL), "backward"),
    "sharded parameters, in a hook of backward": (
        ((C10D, "reduce_scatter_tensor"), (f"{TORCH}/distributed/fsdp/_collectives.py", "foreach_reduce"),
         (GRAPH, "_engine_run_backward"), (f"{TORCH}/_tensor.py", "backward"), CELL),
        "reduce_scatter_tensor",
    ),
    "a tensor that is waited for": (
        ((f"{TORCH}/_ops.py", "__call__"), (FUNCTIONAL, "wait_tensor"), (FUNCTIONAL, "trigger_wait"),
         (f"{TORCH}/utils/_cxx_pytree.py", "wrapped"), (FUNCTIONAL, "__torch_dispatch__"), CELL),
        "wait_tensor",
    ),
    "a private function of torch alone": (((f"{TORCH}/distributed/utils.py", "_sync"), CELL), "_sync"),
    "a model made": (((f"{TORCH}/nn/parallel/distributed.py", "__init__"), CELL), "DistributedDataParallel"),
    "user code called back by torch": ((CELL, (f"{TORCH}/distributed/algorithms/x.py", "hook"), CELL), ""),
    "user code in a forward": ((CELL, (f"{TORCH}/nn/parallel/distributed.py", "forward"), CELL), ""),
    "a function of TensorFlow's": (
        ((EXECUTE, "quick_execute"), (f"{TENSORFLOW}/eager/context.py", "call_function"), (FUNCTION, "__call__"),
         HANDLER, CELL),
        "tf.function",
    ),
    "one that can be cancelled, in a loop of Keras's": (
        ((EXECUTE, "execute_with_cancellation"), (FUNCTION, "__call__"), HANDLER,
         ("/site-packages/tf_keras/src/engine/training.py", "fit"),
         ("/site-packages/tf_keras/src/utils/traceback_utils.py", "error_handler"), CELL),
        "fit",
    ),
    "a strategy that has threads": (
        ((THREAD, "wait"), (THREAD, "wait"), (WORKERS, "map"),
         (f"{TENSORFLOW}/distribute/cross_device_ops.py", "_all_reduce_per_replica_values"), RUN, CELL),
        "strategy.run",
    ),
    "a traceback that TensorFlow has shortened": (
        (("", ""), (EXECUTE, "quick_execute"), HANDLER, CELL), "tf.function"
    ),
    "an interrupt within a collective": (
        (MAILBOX, (C10D, "all_reduce"), (LOGGER, "wrapper"), CELL, SHELL), "all_reduce",
    ),
    "an interrupt in TensorFlow's own Python": (
        (MAILBOX, (f"{TENSORFLOW}/util/dispatch.py", "op_dispatch_handler"), HANDLER, CELL), "",
    ),
    "TensorFlow's own Python": (((f"{TENSORFLOW}/framework/ops.py", "convert_to_tensor"), HANDLER, CELL), ""),
    "threads of a person's own": (((THREAD, "wait"), (WORKERS, "map"), CELL), ""),
    "torchrun's agent, which waits for its workers": (
        ((f"{TORCH}/distributed/elastic/agent/server/api.py", "run"),
         (f"{TORCH}/distributed/launcher/api.py", "launch_agent"), CELL),
        "",
    ),
    "torch, which writes in its log that a collective failed": (
        ((C10D, "get_backend"), (f"{TORCH}/distributed/c10d_logger.py", "_get_msg_dict"),
         (f"{TORCH}/distributed/c10d_logger.py", "wrapper"), CELL),
        "",
    ),
    "ordinary torch": (((f"{TORCH}/nn/modules/linear.py", "forward"), CELL), ""),
    "jax": (
        (("/site-packages/jax/_src/array.py", "_value"), ("/jax/experimental/multihost_utils.py", "_psum"),
         ("/jax/experimental/multihost_utils.py", "sync_global_devices"), CELL),
        "sync_global_devices",
    ),
    "jax, gathering": (
        (("/jax/experimental/multihost_utils.py", "process_allgather"), CELL), "process_allgather",
    ),
    "a native method": ((("", "wait"), CELL), "work.wait"),
    "a store": ((("", "get"), CELL), "store.get"),
    "another native method": ((("", "sleep"), CELL), ""),
    "a native method below a collective": ((("", "wait"), (C10D, "all_reduce"), CELL), "all_reduce"),
}  # fmt: skip


@pytest.mark.parametrize("case", FRAMES)
def test_frames(case):
    frames, name = FRAMES[case]
    assert waits_in(frames) == name
    assert waits_in(iter(frames)) == name


CALLS = [
    ("x.stop()", "stop"),
    ("stop()", "stop"),
    ("a.b.stop(1, 2)", "stop"),
    ("x.make(1).stop()", "stop"),
    ("(x\n  .make(1)\n  .stop(\n  ))", "stop"),
    ("[x.stop(n) for n in (1,)]", "stop"),
    ("other(x.stop())", "stop"),
    ("x.stop(other(1))", "stop"),
    ("x.stop(*(), **{})", "stop"),
    ("y = 1 + x.stop()", "stop"),
    ("x['a'].stop()", "stop"),
]


@pytest.mark.parametrize(("text", "name"), CALLS)
def test_the_name_of_what_is_called(text, name):
    """Known while the call goes on, and from the exception that it raises."""
    seen = []

    def stop(*_args, **_options):
        frame = sys._getframe().f_back
        seen.append(called_at(frame.f_code, frame.f_lasti))
        return 1

    class Thing:
        def make(self, _):
            return self

        def __getitem__(self, _):
            return self

    x = Thing()
    x.stop = stop
    x.b = x
    exec(compile(text, "<cell 1>", "exec"), {"x": x, "a": x, "stop": stop, "other": lambda n: n})
    assert seen == [name]


def test_a_thread_in_a_native_method():
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lambda: lock.acquire())
    thread.start()
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with looking():
            frames = list(frames_of_thread(sys._current_frames().get(thread.ident)))
        if frames[0] == ("", "acquire"):
            break
    lock.release()
    thread.join()
    assert frames[0] == ("", "acquire")
    assert frames[1] == (__file__, "<lambda>")
    assert list(frames_of_thread(None)) == []


def raised(text: str, **names: object) -> BaseException:
    try:
        exec(compile(text, "<cell 1>", "exec"), names)
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def collective(body: str):
    names: dict[str, object] = {}
    exec(compile(f"def all_reduce():\n    {body}", C10D, "exec"), names)
    return names["all_reduce"]


def test_an_interrupt_of_a_call_whose_result_nobody_has():
    class PjitFunction:
        def __call__(self):
            raise KeyboardInterrupt

    error = raised("step()", step=PjitFunction())
    # As a signal that comes upon native code, which leaves no frame; here its own is in the way.
    assert not lost_a_computation(error)
    error.__traceback__.tb_next.tb_next = None
    assert lost_a_computation(error)
    assert not lost_a_computation(raised("raise KeyboardInterrupt"))


def test_an_exception_out_of_a_collective():
    error = raised("all_reduce()", all_reduce=collective("raise RuntimeError('gloo')"))
    assert error_waited_in(error) == "all_reduce"


def test_an_interrupt_that_came_upon_it():
    """With the frames there were, though its own traceback ends elsewhere."""
    within = "try: raise RuntimeError('gloo')\n    except RuntimeError: interrupt()"

    def interrupt():
        raise KeyboardInterrupt

    names: dict[str, object] = {"interrupt": interrupt}
    exec(compile(f"def all_reduce():\n    {within}", C10D, "exec"), names)
    error = raised("all_reduce()", all_reduce=names["all_reduce"])
    assert isinstance(error, KeyboardInterrupt)
    assert error_waited_in(error) == "all_reduce"
    assert ("<cell 1>", "<module>") in frames_of_error(error)


def test_an_exception_that_users_make_of_it():
    error = raised(
        "try: all_reduce()\nexcept RuntimeError as error: raise ValueError('mine') from error",
        all_reduce=collective("raise RuntimeError('gloo')"),
    )
    assert isinstance(error, ValueError)
    assert error_waited_in(error) == "all_reduce"


def test_other_exceptions():
    assert error_waited_in(None) == ""
    assert error_waited_in(ValueError()) == ""
    assert error_waited_in(raised("1 / 0")) == ""
    assert error_waited_in(raised("{}.get([])")) == "", "a dictionary's"


def test_exceptions_in_a_circle():
    first, second = ValueError(), ValueError()
    first.__context__, second.__context__ = second, first
    assert error_waited_in(first) == ""


@pytest.mark.parametrize(
    ("error", "is_so"),
    [
        (RuntimeError("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer"), True),
        (RuntimeError("NCCL error: unhandled system error"), True),
        (RuntimeError("Timed out waiting 1000ms for recv operation"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("Connection"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_is_raised_for_the_peers(error, is_so):
    assert lost_its_peers(error) is is_so


@pytest.mark.parametrize(
    ("file", "function"),
    [(f"{TENSORFLOW}/util/dispatch.py", "op_dispatch_handler"), (EXECUTE, "quick_execute")],
)
def test_what_an_interrupt_came_upon_in_tensorflow_may_have_computed(file, function):
    """Only what a cut collective raises says that a rank waited in it."""
    scope = {}
    exec(compile("def heed(): raise KeyboardInterrupt", MAILBOX[0], "exec"), scope)
    exec(compile(f"def {function}(): heed()", file, "exec"), scope)
    with pytest.raises(KeyboardInterrupt) as raised:
        scope[function]()
    error = raised.value.with_traceback(raised.value.__traceback__.tb_next)
    assert error_waited_in(error) == ""
