"""What is asked of the helper that speaks to Ray, and what it answers: JSON, one object each. Pure.

The helper (`helper.py`) reads the same fields without this module, as its Python may lack msgspec.
"""

from __future__ import annotations

import msgspec


class StartGroup(msgspec.Struct, frozen=True, tag=True):
    """Ask for a placement group of `bundles`, each on another node; answered by `{}`."""

    group: str
    bundles: list[dict[str, float]]


class LookAtGroup(msgspec.Struct, frozen=True, tag=True):
    """Ask how a group stands; answered by a `GroupState`."""

    group: str


class StartActors(msgspec.Struct, frozen=True, tag=True):
    """Start an actor on each node of a group, each with a keeper; answered by `StartedActors`.

    `program` is what /bin/sh runs there, with the actor's number for `{number}`, and `keep` its folder.
    """

    group: str
    bundles: list[dict[str, float]]
    program: str
    keep: str


class LookAtActors(msgspec.Struct, frozen=True, tag=True):
    """Ask whether the actors of a group live; answered by `ActorFaults`."""

    group: str
    count: int


class EndGroup(msgspec.Struct, frozen=True, tag=True):
    """End the keepers of a group, then its actors and itself; answered by `GroupLeft`.

    Keepers get `patience` seconds to end by themselves first.
    """

    group: str
    count: int
    patience: float


class RunCommand(msgspec.Struct, frozen=True, tag=True):
    """Run a command on the node of an actor; the connection then carries its frames."""

    group: str
    number: int
    words: list[str]


class JoinSocket(msgspec.Struct, frozen=True, tag=True):
    """Join the connection to a unix socket there: after `+` it carries its bytes; `-`: nobody listens."""

    group: str
    number: int
    path: str


class HelperReady(msgspec.Struct, frozen=True, tag="ready"):
    """The helper is a client of the cluster at the address `cluster`; versions are those of its own Ray and Python."""

    ray: str
    python: str
    cluster: str = ""


class HelperFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The helper could not become one, or an answer could not be had; `error` is the class of the exception."""

    error: str
    text: str


class ClusterNode(msgspec.Struct, frozen=True):
    """A living node of the cluster, and what it has in all."""

    name: str
    resources: dict[str, float]


class GroupState(msgspec.Struct, frozen=True):
    """A placement group: `state` and `scheduling` are Ray's words, `nodes` those of the cluster."""

    state: str
    scheduling: str = ""
    nodes: list[ClusterNode] = []


class StartedActor(msgspec.Struct, frozen=True):
    """The node of an actor: Ray's id of it, its host name, its address and the ids of its GPUs."""

    node: str
    host: str
    address: str
    gpus: list[str] = []


class StartedActors(msgspec.Struct, frozen=True):
    """The actors of a group, in the order of its bundles."""

    actors: list[StartedActor]


class ActorFaults(msgspec.Struct, frozen=True):
    """Why each actor is gone, in Ray's words; "" for one that may live."""

    faults: list[str]


class GroupLeft(msgspec.Struct, frozen=True):
    """What of a group may still be there, in words; none if it is gone, or never `was_there`."""

    left: list[str]
    was_there: bool = True


Request = StartGroup | LookAtGroup | StartActors | LookAtActors | EndGroup | RunCommand | JoinSocket
