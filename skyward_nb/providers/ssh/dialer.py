"""Logs in to hosts: by OpenSSH's config, over hosts on the way, a few at a time, each key checked.

asyncssh's errors become `Unreachable` here, and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import socket
from pathlib import Path
from typing import Any

import asyncssh

from skyward_nb.providers.ssh.faults import LoginRefused, Unreachable
from skyward_nb.providers.ssh.settings import Settings, settings_for
from skyward_nb.providers.ssh.trust import HostKeys, algorithms, pin_file, read_known
from skyward_nb.words.hosts import Host
from skyward_nb.words.ssh import SSHAccess

_AT_ONCE = 16
_LIMIT = 20.0
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
"""The fastest first, measured; those without GCM are for hosts that have nothing else."""


class Dialer:
    """Connections to the hosts of one pool. Those on the way to several of them are made once."""

    def __init__(self, access: SSHAccess) -> None:
        self._access = access
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._jumps: dict[str, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._users: set[object] = set()

    def used_by(self, user: object) -> None:
        """Connections on the way are kept for `user`, until it lets go."""
        self._users.add(user)

    async def let_go(self, user: object) -> None:
        """`user` needs none any more; the last one hangs up."""
        self._users.discard(user)
        if not self._users:
            await self._close()

    async def dial(
        self, host: Host, limit: float = _LIMIT, tries: int = _TRIES
    ) -> asyncssh.SSHClientConnection:
        """Log in to a host of the pool within `limit` seconds for each try; raises `Unreachable`.

        A host that drops a login before it has begun (OpenSSH's MaxStartups) is tried again.
        """
        loop = asyncio.get_running_loop()
        settings = await loop.run_in_executor(None, settings_for, self._access, host)
        tunnel = await self._through(settings.jumps, host, limit)
        pause = _PAUSE
        while True:
            tries -= 1
            try:
                async with self._turn:
                    return await self._login(settings, tunnel, limit)
            except Unreachable as fault:
                if not fault.passing or not tries:
                    raise
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads, hides nothing
            pause *= 2

    async def _close(self) -> None:
        """Hang up on the hosts on the way."""
        jumps, self._jumps = list(self._jumps.values()), {}
        for jump in jumps:
            jump.cancel()
            with contextlib.suppress(Unreachable, asyncio.CancelledError):
                connection = await jump
                connection.abort()
                await connection.wait_closed()

    # ── on the way ──────────────────────────────────────────────────────────────────────

    async def _through(
        self, jumps: tuple[Host, ...], host: Host, limit: float
    ) -> asyncssh.SSHClientConnection | None:
        """The connection to the last host on the way."""
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
            # Several hosts wait for it; one that is given up is not to take it from the others.
            return await asyncio.shield(known)
        except Unreachable as fault:
            why = f"the host on the way to it, {jump}, cannot be logged in to: {fault.why}"
            raise Unreachable(str(host), why, passing=fault.passing) from fault

    async def _login_on_the_way(
        self,
        jump: Host,
        tunnel: asyncssh.SSHClientConnection | None,
        limit: float,
        depth: int,
    ) -> asyncssh.SSHClientConnection:
        loop = asyncio.get_running_loop()
        settings = await loop.run_in_executor(
            None, lambda: settings_for(self._access, jump, is_jump=True)
        )
        if tunnel is None and settings.jumps:
            if depth > _MOST_JUMPS:
                raise Unreachable(str(jump), "its ProxyJump leads in a circle")
            tunnel = await self._through(settings.jumps, jump, limit)
        return await self._login(settings, tunnel, limit)

    # ── one login ───────────────────────────────────────────────────────────────────────

    async def _login(
        self, settings: Settings, tunnel: asyncssh.SSHClientConnection | None, limit: float
    ) -> asyncssh.SSHClientConnection:
        loop = asyncio.get_running_loop()
        trust = self._access.trust
        files = [*settings.known, *([pin_file()] if trust == "first" else [])]
        known = await loop.run_in_executor(None, read_known, files)
        judge = HostKeys(settings.place, known, trust)
        options: dict[str, Any] = {
            **settings.named,
            "config": list(settings.files),
            "tunnel": tunnel,
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
            connection = await asyncssh.connect(settings.host.name, **options)
        except (asyncssh.Error, asyncssh.KeyImportError, OSError, TimeoutError, ValueError) as error:
            raise judge.fault or await _fault(settings, error, limit) from error
        wire = connection.get_extra_info("socket")
        if isinstance(wire, socket.socket) or hasattr(wire, "setsockopt"):
            with contextlib.suppress(OSError):
                # What the system holds unsent cannot be overtaken by what is urgent.
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        return connection


def _is_over(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result().is_closed()


# ── errors ──────────────────────────────────────────────────────────────────────────────


async def _fault(settings: Settings, error: Exception, limit: float) -> Unreachable:
    """What an error of asyncssh, or of the system, means to the person."""
    host, place = str(settings.host), settings.place
    where = f"{place.name} port {place.port}"
    match error:
        case asyncssh.PermissionDenied():
            return LoginRefused(host, await _refused(settings))
        case asyncssh.HostKeyNotVerifiable():
            return Unreachable(host, f"its host key is not to be trusted: {error.reason}")
        case asyncssh.ConnectionLost() | ConnectionResetError() | BrokenPipeError():
            why = f"{where} hung up before the login was over: {error}"
            return Unreachable(host, why, passing=True)
        case asyncssh.ChannelOpenError():
            return Unreachable(host, f"the host on the way cannot reach {where}: {error.reason}")
        case asyncssh.KeyExchangeFailed() | asyncssh.ProtocolError():
            return Unreachable(host, f"{where} and we do not understand one another: {error.reason}")
        case asyncssh.Error():
            return Unreachable(host, f"the login failed: {error.reason or type(error).__name__}")
        case socket.gaierror():
            return Unreachable(host, f"the name {place.name} is not found; is it spelt right?")
        case ConnectionRefusedError():
            return Unreachable(host, f"nothing listens on {where}; is sshd up, and the port right?")
        case TimeoutError():
            return Unreachable(host, f"{where} did not answer in {limit:g} s")
        case OSError(errno=errno.EHOSTUNREACH | errno.ENETUNREACH):
            return Unreachable(host, f"there is no way to {where}: {error.strerror}")
        case OSError():
            return Unreachable(host, f"{where}: {error.strerror or error}")
        case _:
            return Unreachable(host, f"the login failed: {error}")


async def _refused(settings: Settings) -> str:
    """What was tried in vain, and what would help."""
    loop = asyncio.get_running_loop()
    tried, locked = await loop.run_in_executor(None, _keys, settings)
    agent = await _agent_keys()
    if agent:
        tried.append(f"{agent} of ssh-agent")
    place = settings.place
    why = f"it does not let {settings.user} in; tried: {', '.join(tried) or 'no key, as there is none'}"
    missing = [path for path in settings.identities if not Path(path).is_file()]
    if missing:
        why += f". There is no {', '.join(missing)}"
    if locked:
        why += (
            f". {', '.join(locked)} is locked by a passphrase, which nobody can be asked for here: "
            f"`ssh-add {locked[0]}` in a terminal unlocks it"
        )
        return why
    return f"{why}. Whatever `{place.login}` needs to get in without asking, this does: key=FILE, or `ssh-copy-id`"


def _keys(settings: Settings) -> tuple[list[str], list[str]]:
    """Keys that could be tried, with their fingerprints, and those that are locked by a passphrase."""
    names = settings.identities or tuple(
        str(path)
        for name in ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
        if (path := Path("~/.ssh").expanduser() / name).is_file()
    )
    tried: list[str] = []
    locked: list[str] = []
    for name in names:
        try:
            tried.append(f"{name} ({asyncssh.read_private_key(name).get_fingerprint()})")
        except asyncssh.KeyEncryptionError:
            locked.append(name)
        except (asyncssh.KeyImportError, OSError):
            continue
    return tried, locked


async def _agent_keys() -> int:
    try:
        async with await asyncssh.connect_agent() as agent:
            return len(list(await agent.get_keys()))
    except (OSError, ValueError, asyncssh.Error):
        return 0
