"""How long an agent waits for a client, by a clock that the test sets forward."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from skyward_nb.node.clients import Clients


def test_a_client_that_is_held_up_finds_the_agent_that_it_has_started(tmp_path):
    """Of a pool with a short `idle`, on a machine that is busy."""
    left = []
    clients = Clients(SimpleNamespace(line=None), None, None, 0.5, None, left.append)

    async def passes(seconds):
        loop = asyncio.get_running_loop()
        clock = loop.time
        loop.time = lambda: clock() + seconds
        for _ in range(3):
            await asyncio.sleep(0)

    async def scene():
        async with await clients.listen(str(tmp_path / "s")):
            await passes(5)
            assert not left
            await passes(60)

    asyncio.run(scene())
    assert left == ["no client for 20 s"]
