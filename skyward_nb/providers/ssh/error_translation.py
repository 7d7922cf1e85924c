"""Errors of asyncssh and of the system, as reasons why a login failed and what helps."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path

import asyncssh

from skyward_nb.providers.far.login_errors import LoginRefused, Unreachable
from skyward_nb.providers.ssh.settings import HostSettings

_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
_REFUSED_THERE = "connect failed: Connection refused"
"""What `ssh -W` says where the host itself, beyond the one on the way, refuses."""
_PLAIN_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


async def fault_of(settings: HostSettings, error: Exception, limit: float) -> Unreachable:
    """The error of a login that had `limit` seconds, as one that says what to do."""
    host = str(settings.host)
    if isinstance(error, asyncssh.PermissionDenied):
        agent = await _agent_keys(settings.agent)
        return LoginRefused(host, await asyncio.to_thread(_refused, settings, agent))
    if isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError):
        why = f"{_where(settings)} hung up before the login was over: {error}"
        return Unreachable(host, why, passing=True)
    silent = isinstance(error, TimeoutError) or (
        isinstance(error, OSError) and error.errno in _NO_WAY
    )
    return Unreachable(host, _spell(settings, error, limit), silent=silent)


def proxy_fault(host: str, said: str) -> Unreachable:
    """The error of a login whose ProxyCommand failed: nothing of the host came back, unless it refused."""
    return Unreachable(host, f"its ProxyCommand {said}", silent=_REFUSED_THERE not in said)


def _where(settings: HostSettings) -> str:
    return f"{settings.place.name} port {settings.place.port}"


def _spell(settings: HostSettings, error: Exception, limit: float) -> str:
    where = _where(settings)
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return f"its host key is not to be trusted: {error.reason}"
        case asyncssh.ChannelOpenError():
            return f"the host on the way cannot reach {where}: {error.reason}"
        case asyncssh.KeyExchangeFailed() | asyncssh.ProtocolError():
            return f"{where} and this side have no way of speaking in common: {error.reason}"
        case asyncssh.Error():
            return f"the login failed: {error.reason or type(error).__name__}"
        case socket.gaierror():
            return f"the name {settings.place.name} is not found: is it spelt right?"
        case ConnectionRefusedError():
            return f"nothing listens on {where}: is sshd up there, and the port right?"
        case TimeoutError():
            return f"{where} did not answer in {limit:g} s"
        case OSError(errno=number) if number in _NO_WAY:
            return f"there is no way to {where}: {error.strerror}"
        case OSError():
            return f"{where}: {error.strerror or error}"
        case _:
            return f"the login failed: {error}"


def _refused(settings: HostSettings, agent: int) -> str:
    """The keys that were tried in vain, and what helps."""
    tried, locked = _keys(settings)
    tried += [f"{agent} of ssh-agent"] if agent else []
    missing = [path for path in settings.identities if not Path(path).is_file()]
    why = f"it does not let {settings.user} in; tried: {', '.join(tried) or 'no key, as there is none'}"
    if missing:
        why += f"; there is no {', '.join(missing)}"
    if locked:
        return (
            f"{why}. A passphrase locks {', '.join(locked)}, and nobody can be asked for it here: "
            f"`ssh-add {locked[0]}` in a terminal unlocks it"
        )
    return (
        f"{why}. What lets `{settings.place.login}` in without a question lets this in, too: a key "
        "that the host knows (`ssh-copy-id`), named by key=FILE or OpenSSH's config, or in ssh-agent"
    )


def _keys(settings: HostSettings) -> tuple[list[str], list[str]]:
    """(keys that were tried, with their fingerprints; keys that a passphrase locks)."""
    folder = Path("~/.ssh").expanduser()
    names = settings.identities or tuple(str(folder / name) for name in _PLAIN_KEYS)
    tried: list[str] = []
    locked: list[str] = []
    for name in names:
        try:
            tried.append(f"{name} ({asyncssh.read_private_key(name).get_fingerprint()})")
        except OSError:
            continue
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            if "assphrase" in str(error):
                locked.append(name)
    return tried, locked


async def _agent_keys(path: str) -> int:
    """The number of keys in the user's ssh-agent."""
    if not path:
        return 0
    try:
        agent = await asyncssh.connect_agent(path)
    except (OSError, ValueError, asyncssh.Error):
        return 0
    try:
        return len(list(await agent.get_keys()))
    except (OSError, ValueError, asyncssh.Error):
        return 0
    finally:
        agent.close()
        await agent.wait_closed()
