"""Who connects to TensorFlow's server of a rank: processes of the pool's owner, on the pool's machines.

It runs the code it is sent, and does not ask who connects. So the server listens where a filter drops everybody (`connection_gate`), and a
relay, a process of the rank, listens at the port that the pool's ranks know. It closes a connection from
this machine unless the process at the other end has the owner's uid (`system/peer_owner`), and one from
another machine unless that is a machine of the pool. What it takes it passes on, from a port that it
holds and the filter passes.

Dropped: the kernel has no SO_PEERCRED for TCP; a source address proves nothing, as anybody may bind
127.x.y.z; filters by uid (nftables, cgroup-BPF) need root; ranks in a network namespace of their own have no
internet; and a relay inside the rank stands still while TensorFlow holds the interpreter's lock. The
owner of a connection from another machine cannot be seen: see `plugins/plugin_base.check_people`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from skyward_nb.plugins import connection_gate
from skyward_nb.system.addresses import family_of
from skyward_nb.words.info import LOOPBACK, InstanceInfo

_ROOT = Path(__file__).parents[2]
_CODE = """
import json, sys
root, *given = json.loads(sys.argv[1])
sys.path.append(root)
from skyward_nb.plugins.relay_process import run
run(*given)
"""
_BACKLOG = 1024
_TAKEN, _PAUSE = 5.0, 0.01
"""Seconds until the relay of a rank that was killed has left its port."""


def hidden_address(port: int) -> str:
    """The address of loopback where the server behind this port listens, at the same port number."""
    return f"127.1.{port >> 8}.{port & 0xFF}"


def other_machines(info: InstanceInfo) -> list[str]:
    """The addresses of the pool's machines, without this one's."""
    own = {LOOPBACK, *(peer.address for peer in info.peers if peer.node == info.node)}
    return list(dict.fromkeys(peer.address for peer in info.peers if peer.address not in own))


class OwnerRelay:
    """Takes connections at a port, for a server that is to begin; ends with this process, or `close`.

    The server may begin at `hidden_address(port)`, or where it listens at all addresses, at that port;
    it must set SO_REUSEPORT. `machines` are the addresses of the pool's other machines; `held` is a
    socket that is bound already. Raises OSError where the port is taken, and as `connection_gate.shut`.
    """

    def __init__(
        self,
        address: str,
        port: int,
        machines: Collection[str] = (),
        *,
        everywhere: bool = False,
        held: socket.socket | None = None,
    ) -> None:
        server = hidden_address(port)
        door = held or _bound(address, port)
        # A server that listens at all addresses shares the port with it, and this has precedence.
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, everywhere)
        try:
            if everywhere:
                door.listen(_BACKLOG)
            self.gate: socket.socket = connection_gate.shut("" if everywhere else server, port)
        except BaseException:
            if held is None:
                door.close()
            raise
        with door:
            door.listen(_BACKLOG)
            self._control, control = socket.socketpair()
            with control:
                descriptors = door.fileno(), self.gate.fileno(), control.fileno()
                words = [_ROOT.as_posix(), *descriptors, server, list(machines)]
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                    [sys.executable, "-I", "-S", "-c", _CODE, json.dumps(words)],
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )

    def close(self) -> None:
        """End it, with its connections; the server has ended before."""
        # Closing is not enough: a process that user code forked may have the socket, too.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._process.wait()
        self.gate.close()

    def server(self) -> socket.socket:
        """A socket that listens behind the gate, for a server that is given one."""
        return connection_gate.server_behind(self.gate)

    def check(self) -> None:
        """Raise UnsafeServer unless the server has begun behind the gate."""
        connection_gate.check(self.gate)


def _bound(address: str, port: int) -> socket.socket:
    """A socket at the port that the agent holds."""
    until = time.monotonic() + _TAKEN
    while True:
        made = socket.socket(family_of(address))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((address, port))
        except OSError:
            made.close()
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)
        else:
            return made
