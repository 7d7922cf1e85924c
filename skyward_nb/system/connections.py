"""TCP connections between machines."""

from __future__ import annotations

import socket

_SILENT = 30
"""Seconds after which a machine that answers nothing counts as cut off."""


def tune(connection: socket.socket) -> None:
    """Send without delay, and give up soon if the other machine is cut off, or takes nothing in."""
    watch(connection)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENT)


def watch(connection: socket.socket) -> None:
    """Send without delay, and know soon, where nothing is on its way there, that the other machine is cut off.

    So does one that waits for a value, where its own address is gone.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT // 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENT // 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
