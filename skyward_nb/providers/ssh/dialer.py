"""Logs in to hosts by OpenSSH's config and over its jump hosts, a few at a time; checks host keys."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from typing import Any

import asyncssh

from skyward_nb.providers.far.login_errors import Unreachable
from skyward_nb.providers.ssh.error_translation import fault_of, proxy_fault
from skyward_nb.providers.ssh.host_keys import HostKeys, algorithms, pin_file, read_known
from skyward_nb.providers.ssh.private_keys import keys_for
from skyward_nb.providers.ssh.proxy_command import ProxyCommand, open_proxy
from skyward_nb.providers.ssh.settings import HostSettings, settings_for
from skyward_nb.words.hosts import Host, SSHAccess

_AT_ONCE = 16
LOGIN_LIMIT = 20.0
"""Seconds that a login may take."""
_SLOW = 2.0
_TRIES = 6
_PAUSE = 0.2
_MOST_JUMPS = 8
_KEEPALIVE = 5.0
_MISSED = 3
_UNSENT = 128 << 10
_CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
)
"""The fastest first, as measured; those without GCM are for hosts that have no others."""


class Dialer:
    """Connections to the hosts of one pool, which share connections to jump hosts."""

    def __init__(self, access: SSHAccess) -> None:
        self._access = access
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._jumps: dict[str, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._users: set[object] = set()
        self._ending: set[asyncio.Task[None]] = set()

    def used_by(self, user: object) -> None:
        """Keep connections to jump hosts for `user`, until it lets go."""
        self._users.add(user)

    async def let_go(self, user: object) -> None:
        """`user` needs no connection any more; after the last user, all are closed."""
        self._users.discard(user)
        if not self._users:
            await self._close()

    async def dial(
        self, host: Host, limit: float = LOGIN_LIMIT, tries: int = _TRIES
    ) -> asyncssh.SSHClientConnection:
        """Log in to a host of the pool within `limit` seconds for each try; raises `Unreachable`.

        A host that drops a login before it has begun (OpenSSH's MaxStartups) is tried again.
        """
        settings = await asyncio.to_thread(settings_for, self._access, host)
        pause = _PAUSE
        while True:
            tries -= 1
            try:
                tunnel = await self._through(settings.jumps, host, limit)
                return await self._login_in_turn(settings, tunnel, limit)
            except Unreachable as fault:
                if not fault.passing or not tries:
                    raise
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads, hides nothing
            pause *= 2

    async def _close(self) -> None:
        """Hang up on jump hosts, and wait for the end of proxy commands."""
        jumps, self._jumps = list(self._jumps.values()), {}
        for jump in jumps:
            jump.cancel()
            with contextlib.suppress(Unreachable, asyncio.CancelledError):
                connection = await jump
                connection.abort()
                await connection.wait_closed()
        await asyncio.gather(*self._ending)

    # ── on the way ──────────────────────────────────────────────────────────────────────

    async def _through(
        self, jumps: tuple[Host, ...], host: Host, limit: float
    ) -> asyncssh.SSHClientConnection | None:
        """The connection to the last jump host."""
        tunnel, way = None, ""
        for jump in jumps:
            way += f" {jump.address}"
            tunnel = await self._jump(way, jump, tunnel, limit, host)
        return tunnel

    async def _jump(
        self,
        way: str,
        jump: Host,
        tunnel: asyncssh.SSHClientConnection | None,
        limit: float,
        host: Host,
    ) -> asyncssh.SSHClientConnection:
        known = self._jumps.get(way)
        if known is None or _is_over(known):
            depth = way.count(" ")
            work = self._login_on_the_way(jump, tunnel, limit, depth)
            known = self._jumps[way] = asyncio.get_running_loop().create_task(work)
        try:
            # Several hosts wait for it, and one of them may be cancelled.
            return await asyncio.shield(known)
        except Unreachable as fault:
            why = f"the host on the way to it, {jump}, cannot be logged in to: {fault.why}"
            raise Unreachable(str(host), why, passing=fault.passing, silent=True) from fault

    async def _login_on_the_way(
        self, jump: Host, tunnel: asyncssh.SSHClientConnection | None, limit: float, depth: int
    ) -> asyncssh.SSHClientConnection:
        settings = await asyncio.to_thread(settings_for, self._access, jump, is_jump=True)
        if tunnel is None and settings.jumps:
            if depth > _MOST_JUMPS:
                raise Unreachable(str(jump), "its ProxyJump leads in a circle")
            tunnel = await self._through(settings.jumps, jump, limit)
        return await self._login(settings, tunnel, limit)

    # ── one login ───────────────────────────────────────────────────────────────────────

    async def _login_in_turn(
        self, settings: HostSettings, tunnel: asyncssh.SSHClientConnection | None, limit: float
    ) -> asyncssh.SSHClientConnection:
        """Log in, in turn; a slow login makes room for the next one."""
        async with self._turn:
            login = asyncio.get_running_loop().create_task(self._login(settings, tunnel, limit))
            try:
                await asyncio.wait([login], timeout=_SLOW)
            except asyncio.CancelledError:
                login.cancel()
                with contextlib.suppress(asyncio.CancelledError, Unreachable):
                    (await login).abort()
                raise
        return await login

    async def _login(
        self, settings: HostSettings, tunnel: asyncssh.SSHClientConnection | None, limit: float
    ) -> asyncssh.SSHClientConnection:
        if tunnel is not None or not settings.proxy:
            return await self._logged_in(settings, {"tunnel": tunnel}, limit)
        try:
            proxy = await open_proxy(settings.proxy)
        except OSError as error:
            said = f"`{settings.proxy}` did not start: {error.strerror}"
            raise proxy_fault(str(settings.host), said) from error
        try:
            connection = await self._logged_in(settings, {"sock": proxy.end}, limit)
        except BaseException as error:
            passing = isinstance(error, Unreachable) and error.passing
            failed = await proxy.failure() if passing else ""
            await proxy.close()
            if failed:
                raise proxy_fault(str(settings.host), failed) from error
            raise
        ending = asyncio.get_running_loop().create_task(_closed(proxy, connection))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return connection

    async def _logged_in(
        self, settings: HostSettings, way: dict[str, Any], limit: float
    ) -> asyncssh.SSHClientConnection:
        trust = self._access.trust
        files = [*settings.known, *([pin_file()] if trust == "first" else [])]
        known = await asyncio.to_thread(read_known, files)
        judge = HostKeys(settings.place, known, trust)
        options: dict[str, Any] = {
            **settings.named,
            **way,
            "client_factory": lambda: judge,
            "known_hosts": known,
            "server_host_key_algs": algorithms(known, settings.place),
            "compression_algs": None,
            "ignore_encrypted": True,
            "agent_forwarding": False,
            "x11_forwarding": False,
            "keepalive_interval": _KEEPALIVE,
            "keepalive_count_max": _MISSED,
            "login_timeout": limit,
        }
        if "Ciphers" not in settings.says:
            options["encryption_algs"] = list(_CIPHERS)
        if "ConnectTimeout" not in settings.says:
            options["connect_timeout"] = limit
        try:
            async with keys_for(settings) as keys:
                connection = await asyncssh.connect(settings.host.name, **{**options, **keys})
        except (asyncssh.Error, OSError, ValueError) as error:
            raise judge.fault or await fault_of(settings, error, limit) from error
        wire = connection.get_extra_info("socket")
        if isinstance(wire, socket.socket) or hasattr(wire, "setsockopt"):
            with contextlib.suppress(OSError):
                # Urgent bytes cannot overtake bytes that the system holds unsent.
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        return connection


async def _closed(proxy: ProxyCommand, connection: asyncssh.SSHClientConnection) -> None:
    """Close the proxy command of a connection that has ended."""
    await connection.wait_closed()
    await proxy.close()


def _is_over(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().is_closed()
