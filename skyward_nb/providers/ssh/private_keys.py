"""Which private keys of the person a login tries, and in which order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import asyncssh

from skyward_nb.providers.ssh.settings import HostSettings


@contextlib.asynccontextmanager
async def keys_for(settings: HostSettings) -> AsyncGenerator[dict[str, Any]]:
    """Arguments of asyncssh that have keys that are named tried before others that ssh-agent has.

    A host lets only so many be tried (MaxAuthTries), and an agent may have more.
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
        loop = asyncio.get_running_loop()
        named = await loop.run_in_executor(None, _named, settings.identities)
        first = [key for data in named.values() for key in held if key.public_data == data]
        files = [
            path
            for path in settings.named["client_keys"]
            if named[path] not in [key.public_data for key in first]
        ]
        others = [key for key in held if key not in first]
        keys = [*first, *files, *others]
        yield {"client_keys": keys, "agent_path": None} if held else {}


def _named(paths: tuple[str, ...]) -> dict[str, bytes | None]:
    """The public halves of keys in files, None where that cannot be told."""
    return {path: _public(path) for path in paths}


def _public(path: str) -> bytes | None:
    for name in (path, f"{path}.pub"):
        with contextlib.suppress(OSError, asyncssh.KeyImportError):
            return asyncssh.read_public_key(name).public_data
    with contextlib.suppress(OSError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return asyncssh.read_private_key(path).public_data
    return None
