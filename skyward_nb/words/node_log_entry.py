"""Log lines of a pool's machines, from their setup on: `NodeLogEntry`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skyward_nb.words.masking import masked_address


class NodeLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line about a machine; `part` is its subject, such as `login`, `environment` or `agent.log`.

    `when` is in seconds since 1970, None if unknown; `nodes` are the machine's nodes, none before the choice.
    """

    host: str
    nodes: tuple[int, ...] = ()
    when: float | None = None
    part: str
    text: str


def node_log_entries(
    host: str, part: str, text: str, when: float | None, nodes: tuple[int, ...] = ()
) -> Iterator[NodeLogEntry]:
    """An entry for each line of a text, without passwords of addresses."""
    for line in masked_address(text).splitlines():
        yield NodeLogEntry(host=host, nodes=nodes, when=when, part=part, text=line)
