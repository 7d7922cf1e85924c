"""A `Shell` whose files go as scripts do: what all ways to a machine have in common that carry scripts alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import chain

from skyward_nb.bootstrap.file_upload import UPLOAD_END, upload_error, upload_script
from skyward_nb.bootstrap.remote_shell import ScriptResult, unheard, untold


class ScriptShell(ABC):
    """Runs scripts, and sends each file as the stdin of one."""

    async def run(
        self,
        script: str,
        *,
        data: bytes = b"",
        limit: float = 60.0,
        heard: Callable[[str], None] = unheard,
    ) -> ScriptResult:
        """See `Shell.run`."""
        return await self._run(script, [data] if data else [], limit, heard, untold)

    async def send(
        self,
        path: str,
        parts: Iterable[bytes],
        *,
        mode: int = 0o600,
        told: Callable[[int], None] = untold,
    ) -> None:
        """See `Shell.send`."""
        parts = chain(parts, [UPLOAD_END])
        ran = await self._run(upload_script(path, mode), parts, None, unheard, told)
        if ran.code:
            raise upload_error(path, ran.err)

    @abstractmethod
    async def _run(
        self,
        script: str,
        parts: Iterable[bytes],
        limit: float | None,
        heard: Callable[[str], None],
        told: Callable[[int], None],
    ) -> ScriptResult:
        """Run a script with `parts` as its stdin; `told` gets the bytes that went so far."""
