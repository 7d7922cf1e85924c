"""Types of objects that are bound to their process, and why: most reasons why a value cannot be pickled.

A type of another module is known by the module's name: nothing is imported here for that.
"""

from __future__ import annotations

import contextvars
import io
import mmap
import pickle
import re
import select
import socket
import threading
import types
import weakref
from collections.abc import Iterator


class Unpicklable(pickle.PicklingError):
    """This object is bound to its process; the text says why."""


_LIVE: dict[tuple[type, ...], str] = {
    (type(threading.Lock()), type(threading.RLock())): "a lock guards threads of one process",
    (threading.Thread,): "a thread belongs to its process",
    (threading.local,): "its content is each thread's own",
    (contextvars.ContextVar,): "its value is each thread's and task's own; send .get() of it",
    (io.IOBase,): "an open file belongs to its process; send its path and open it there",
    (socket.socket,): "a socket belongs to its process",
    (select.epoll,): "it watches files of its process",
    (types.GeneratorType, types.AsyncGeneratorType): (
        "a generator is a function halfway through; send list(...) of it, or make it there"
    ),
    (types.CoroutineType,): "a coroutine is a function halfway through; await it there",
    (types.FrameType, types.TracebackType): "it is a part of running code",
    (re.Match,): "it points into the text that was searched; send .group() or .groups() of it",
    (mmap.mmap,): "a mapping belongs to its process",
    (weakref.ref, weakref.ProxyType, weakref.CallableProxyType): (
        "a weak reference keeps nothing alive, so on a rank it would be dead"
    ),
}  # fmt: skip
_LIVE_ELSEWHERE = {
    ("subprocess", "Popen"): "it is the handle of a process of this machine",
    ("asyncio", "Future"): "it belongs to the event loop of its process",
    ("_asyncio", "Future"): "it belongs to the event loop of its process",
    ("asyncio", "AbstractEventLoop"): "it belongs to the event loop of its process",
    (
        "sqlite3",
        "Connection",
    ): "it is open in its process; send the path of the database, and connect there",
    ("sqlite3", "Cursor"): "it belongs to a connection of its process; send the rows, .fetchall()",
    ("concurrent", "Executor"): "it runs threads of its process",
    ("concurrent", "Future"): "a future belongs to its process; send what it gives, .result()",
    ("_ctypes", "Array"): "it is memory of its process; send bytes of it",
    ("_ctypes", "_Pointer"): "it points into its process",
    ("ctypes", "CDLL"): "a library is loaded by each process itself",
    ("torch", "Stream"): "a CUDA stream is a handle of its process's device",
    ("torch", "Event"): "a CUDA event is a handle of its process's device",
    ("torch", "CUDAGraph"): "a CUDA graph is a handle of its process's device",
    ("torch", "ProcessGroup"): "a process group is a part of each rank; use the rank's own",
    ("torch", "Work"): "it is a collective under way in its process",
    (
        "torch",
        "_BaseDataLoaderIter",
    ): "it is halfway through its data; send the loader, and begin there",
    (
        "tensorflow",
        "IteratorBase",
    ): "it is halfway through its data; send the data set, and begin there",
    (
        "torch",
        "CustomOpDef",
    ): "an operator is registered in each process; define it in the cell that uses it",
    (
        "tensorboardX",
        "SummaryWriter",
    ): "it writes files from its process; make it in the cell that writes",
    **dict.fromkeys(
        (("accelerate", "DataLoaderShard"), ("accelerate", "DataLoaderDispatcher")),
        "it was prepared for its process; call prepare(...) in the cell that ranks run",
    ),
    ("jaxlib", "Device"): "a device is of its process; jax.devices() has those of the ranks",
    ("jax", "Mesh"): "it is of devices of its process; make it of jax.devices() on the ranks",
    (
        "jax",
        "Jaxpr",
    ): "what JAX has traced stays in its process; send the function, and trace it there",
    ("jax", "Lowered"): "it is lowered for devices of its process; send the function",
    ("jax", "Compiled"): "it is compiled for devices of its process; send the function",
}


OPEN_FILE = _LIVE[(io.IOBase,)]


def refusal(kind: type) -> str | None:
    """Why objects of this kind cannot leave their process; None for those that may."""
    if not issubclass(kind, io.BytesIO | io.StringIO):
        for kinds, why in _LIVE.items():
            if issubclass(kind, kinds):
                return why
    for family in families(kind):
        if (why := _LIVE_ELSEWHERE.get(family)) is not None:
            return why
    return None


def families(kind: type) -> Iterator[tuple[str, str]]:
    """(package, class) of a kind and of what it derives from."""
    return ((str(cls.__module__).partition(".")[0], cls.__name__) for cls in type.mro(kind))
