"""The connections to the agent: its one client's and visitors', and its lifetime without a client."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable

from msgspec.structs import replace

from skyward_nb.node.client_connection import ClientConnection
from skyward_nb.node.lease import Lease
from skyward_nb.node.local_ranks import LocalRanks
from skyward_nb.node.outbox import Outbox
from skyward_nb.node.run_record import RunRecord
from skyward_nb.protocol.commands import Attach, Command, Fork
from skyward_nb.protocol.events import AgentStatus, AttachRefused, Hello
from skyward_nb.protocol.message_parts import FIRST_CLIENT, Client

_LOOKS, _A_LOOK = 10, 0.01
"""Turns of the loop, and seconds each, in which a client is heard that came while this process had no processor."""


class Clients:
    """Lets one client attach at a time; calls `leave` when none has been attached for `idle` seconds.

    The first one may take longer to come.
    """

    def __init__(
        self,
        outbox: Outbox,
        ranks: LocalRanks,
        runs: RunRecord,
        idle: float,
        obey: Callable[[Command, bytes], None],
        leave: Callable[[str], None],
    ) -> None:
        self._outbox = outbox
        self._ranks = ranks
        self._runs = runs
        self._idle = idle
        self._leave = leave
        self.obey = obey
        """Does what the client commands; `data` is the command's frame."""
        self._client: Client | None = None
        """The last one that attached, even if it has gone."""
        self._forked_by: Client | None = None
        """The client, without its key, that had the present ranks forked."""
        self._names_since = 0
        """What it said with that: the first generation whose names they may go on from."""
        self._forked_after = 0
        """The last run's number then."""
        self._received = 0
        """Commands that came from it until it had gone."""
        self._visitors: set[ClientConnection] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self._machine_lease = Lease(lambda: outbox.line is not None)

    async def listen(self, path: str) -> asyncio.Server:
        """Accept connections on a unix socket; the time without a client begins."""
        server = await asyncio.get_running_loop().create_unix_server(self.welcome, path)
        self._renew_expiry()
        return server

    def welcome(self) -> ClientConnection:
        """The agent's end of a connection that is just made."""
        return ClientConnection(self)

    async def close(self) -> None:
        """Send all connections the rest of their events, and hang up."""
        for line in [*self._visitors, *([self._outbox.line] if self._outbox.line else [])]:
            await line.finish()

    def release_machine(self) -> None:
        """Note that this pool does not need the machine any more."""
        self._machine_lease.close()

    # ── called by connections ───────────────────────────────────────────────────────────

    def attach(self, line: ClientConnection, command: Attach) -> None:
        """Accept the client, unless another one is attached.

        A client replaces its own old connection. It is refused if another client was attached
        meanwhile: its repeated commands would interfere with that one's.
        """
        client, current = command.client, self._outbox.line
        if current is not None and current.is_gone():
            current.hang_up()
            self.hung_up_on(current)
            current = None
        is_known = self._client is not None and self._client.key == client.key
        comes_late = current is not None or command.offset is not None
        if self._client is not None and not is_known and comes_late:
            line.say(AttachRefused(self._client))
            return
        if current is not None:
            self._received = current.received
            current.hang_up()
        line.received = self._received if is_known else 0
        self._client = client
        self._renew_expiry(attached=True)
        offset = command.offset
        if offset is None:
            offset = self._runs.start_for_newcomer()
        rank_python, rank_packages = self._ranks.environment
        line.say(
            Hello(
                pid=os.getpid(),
                python=platform.python_version(),
                offset=offset,
                received=line.received,
                generation=self._ranks.generation,
                places=self._ranks.table.places,
                pids=self._ranks.table.pids,
                runs=self._runs.last,
                unseen=self._runs.unseen,
                noticed=self._ranks.notice,
                rank_python=rank_python,
                rank_packages=rank_packages,
                forked_by=self._forked_by,
                names_since=self._names_since,
                used=self._runs.last_work > self._forked_after,
            )
        )
        self._outbox.follow(line, offset)
        self._machine_lease.renew()

    def take(self, command: Command, data: bytes) -> None:
        """A command came from the client."""
        if isinstance(command, Fork) and self._client is not None:
            self._forked_by = replace(self._client, key="")
            self._names_since = command.names_since
            self._forked_after = self._runs.last
        self.obey(command, data)

    def visit(self, line: ClientConnection) -> None:
        """Tell a visitor the agent's status."""
        self._visitors.add(line)
        now = asyncio.get_running_loop().time()
        line.say(
            AgentStatus(
                pid=os.getpid(),
                client=self._client if self._outbox.line else None,
                left=None if self._expiry is None else self._expiry.when() - now,
                generation=self._ranks.generation,
                ranks=self._ranks.table.numbers,
                pids=self._ranks.table.pids,
                ended=dict(self._ranks.causes.all_told),
                unseen=self._runs.unseen,
                running=self._runs.running,
            )
        )

    def inspect(self, line: ClientConnection, ranks: tuple[int, ...]) -> None:
        """Tell this connection the stacks of ranks."""
        self._ranks.inspect(ranks, line.say)

    def caught_up(self) -> None:
        """A connection can take more events."""
        self._outbox.caught_up()

    def hung_up_on(self, line: ClientConnection) -> None:
        """A connection is gone; if it was the client's, the time without a client begins."""
        self._visitors.discard(line)
        if self._outbox.line is line:
            self._received = line.received
            self._outbox.hung_up()
            self._renew_expiry()

    def _renew_expiry(self, *, attached: bool = False) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if not attached:
            idle = self._idle if self._client is not None else max(self._idle, FIRST_CLIENT)
            loop, why = asyncio.get_running_loop(), f"no client for {idle:g} s"
            self._expiry = loop.call_later(idle, self._look_again, why, _LOOKS)

    def _look_again(self, why: str, looks: int) -> None:
        """Leave, unless a client has come while this process had no processor: its command is read first."""
        if not looks:
            self._leave(why)
            return
        again = asyncio.get_running_loop().call_later
        self._expiry = again(_A_LOOK, self._look_again, why, looks - 1)
