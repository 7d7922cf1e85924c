"""How the hosts of a pool are reached, as one value: `SSHAccess`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from skyward_nb.words.hosts import Host

Trust = Literal["known", "first"]


class SSHAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts to log in to, and what is said for all of them beside OpenSSH's config.

    `user` and `port` count for hosts that name none themselves; `key` is the file of a private key
    and `config` one to read instead of `~/.ssh/config`, as `ssh -i` and `ssh -F` take them. `trust`
    says which host keys are taken: those that are `known`, or also the `first` one a host shows,
    which is pinned. Of a pool that is up, the first hosts are its nodes.
    """

    hosts: tuple[Host, ...]
    user: str | None = None
    port: int | None = None
    key: str | None = None
    config: str | None = None
    trust: Trust = "known"

    def living_on(self, names: Sequence[str]) -> SSHAccess:
        """The same with the hosts of these names first, in that order: they are the nodes."""
        order = {name: at for at, name in enumerate(names)}
        first = sorted(self.hosts, key=lambda host: order.get(str(host), len(order)))
        return self.having(hosts=tuple(first))

    def having(self, **changes: Any) -> SSHAccess:
        """This one with some of it changed."""
        return msgspec.structs.replace(self, **changes)
