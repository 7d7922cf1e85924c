"""Private keys: new ones, and those that a login tries, in their order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import asyncssh

from skyward_nb.providers.ssh.settings import HostSettings


@dataclass(frozen=True)
class KeyPair:
    """Both halves, as OpenSSH writes them."""

    private: str
    public: str


def new_pair(comment: str) -> KeyPair:
    """A new Ed25519 pair."""
    return _pair_of(asyncssh.generate_private_key("ssh-ed25519"), comment)


def read_pair(private: bytes, comment: str) -> KeyPair:
    """The pair of a private key without a passphrase."""
    return _pair_of(asyncssh.import_private_key(private), comment)


def _pair_of(key: asyncssh.SSHKey, comment: str) -> KeyPair:
    key.set_comment(comment)
    return KeyPair(key.export_private_key().decode(), key.export_public_key().decode().strip())


@contextlib.asynccontextmanager
async def keys_for(settings: HostSettings) -> AsyncGenerator[dict[str, Any]]:
    """Arguments of asyncssh with which named keys are tried before other keys of ssh-agent.

    A host limits the number of tries (MaxAuthTries), and an agent may have more keys.
    """
    if not settings.identities or not settings.agent or settings.is_named_only:
        yield {}
        return
    async with contextlib.AsyncExitStack() as stack:
        try:
            agent = await stack.enter_async_context(await asyncssh.connect_agent(settings.agent))
            held = list(await agent.get_keys())
        except (OSError, ValueError, asyncssh.Error):
            held = []
        public = await asyncio.to_thread(lambda: list(map(_public, settings.identities)))
        named = dict(zip(settings.identities, public, strict=True))
        first = [key for data in named.values() for key in held if key.public_data == data]
        files = [
            path
            for path in settings.named["client_keys"]
            if named[path] not in [key.public_data for key in first]
        ]
        others = [key for key in held if key not in first]
        keys = [*first, *files, *others]
        yield {"client_keys": keys, "agent_path": None} if held else {}


def _public(path: str) -> bytes | None:
    """The public half of the key in a file; None if it cannot be read."""
    for name in (path, f"{path}.pub"):
        with contextlib.suppress(OSError, asyncssh.KeyImportError):
            return asyncssh.read_public_key(name).public_data
    with contextlib.suppress(OSError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return asyncssh.read_private_key(path).public_data
    return None
