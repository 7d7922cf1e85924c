"""The way out of a street: a proxy that listens there and connects from here. It takes CONNECT alone.

Run as a script of its own on this machine, with the process id of the street's box and the address to
listen at. It ends when stdin does.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from pathlib import Path

_PIECE = 1 << 16
_NETWORK = 0x40000000


def listening(pid: int, address: str) -> socket.socket:
    """A socket that listens in the other namespace: it stays there, whoever holds it."""
    libc = ctypes.CDLL(None, use_errno=True)
    here, there = (
        os.open(Path("/proc", each, "ns/net"), os.O_RDONLY) for each in ("self", str(pid))
    )
    for each in (there, here):
        if libc.setns(each, _NETWORK):
            sys.exit(f"no way there: {os.strerror(ctypes.get_errno())}")
        if each == there:
            made = socket.create_server((address, 0))
        os.close(each)
    return made


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(_PIECE):
            sink.write(piece)
            await sink.drain()
    except OSError:
        """One of both has gone: so does the other."""
    finally:
        sink.close()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        words = (await reader.readuntil(b"\r\n\r\n")).split()
        host, _, port = words[1].decode().rpartition(":")
        if words[0] != b"CONNECT":
            raise OSError("only CONNECT")
        there, back = await asyncio.open_connection(host, int(port))
    except (OSError, asyncio.IncompleteReadError):
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        writer.close()
        return
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.gather(pump(reader, back), pump(there, writer))


async def main() -> None:
    door = listening(int(sys.argv[1]), sys.argv[2])
    server = await asyncio.start_server(serve, sock=door)
    print(door.getsockname()[1], flush=True)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, over.set)
    await over.wait()
    server.close()


asyncio.run(main())
