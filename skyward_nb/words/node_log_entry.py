"""What is said of the machines of a pool while they are readied and after: `NodeLogEntry`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skyward_nb.words.masking import masked_address


class NodeLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line on a machine: `part` is what it belongs to, such as `login`, `environment` or `agent.log`.

    `when` in seconds since 1970, None where that is not known; `nodes` are those that the machine is
    to be, none before that is chosen.
    """

    host: str
    nodes: tuple[int, ...] = ()
    when: float | None = None
    part: str
    text: str


def node_log_entries(
    host: str, part: str, text: str, when: float | None, nodes: tuple[int, ...] = ()
) -> Iterator[NodeLogEntry]:
    """A word for each line of a text; no passwords of addresses are in them."""
    for line in masked_address(text).splitlines():
        yield NodeLogEntry(host=host, nodes=nodes, when=when, part=part, text=line)
