"""Bytes of a file mapped into memory, copied where they are written to, with no descriptor kept open."""

from __future__ import annotations

import ctypes
import mmap
import os

_FIXED = 0x10
"""MAP_FIXED of Linux and macOS, which `mmap` does not name."""
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


def map_privately(descriptor: int, size: int) -> memoryview:
    """The first bytes of a file, private to the caller; raises OSError.

    `mmap.mmap` of a file duplicates its descriptor (before Python 3.13 always), and a notebook that keeps a
    thousand values runs out of them. So memory without a file is mapped, and the file over it.
    """
    room = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _FIXED
    if _libc.mmap(address, size, access, kind, descriptor, 0) == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"it cannot be mapped: {os.strerror(number)}")
    return memoryview(room)
