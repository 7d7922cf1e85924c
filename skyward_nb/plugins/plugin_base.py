"""The protocol of a plugin, and its view of the rank that it prepares."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from skyward_nb.plugins.connection_gate import UnsafeServer
from skyward_nb.system.other_accounts import why_not_trusted
from skyward_nb.words.errors import OptionError
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mesh import size_of, spell_mesh, uneven

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

TRUSTS = "trust_local_users"
"""The option of each plugin that says so of the pool."""


@dataclass(frozen=True)
class RankContext:
    """What a plugin may know when it readies a rank: its place, and this process's means.

    `threads` is its share of the machine's processors, one at least; `rendezvous_fd` is, on the
    head, a socket bound to the rendezvous port and not yet listening. Cells may hold `memory_limit`
    bytes (None: no limit). `shared` is a folder that only the pool's owner may enter, in which all ranks can
    meet (None: some are on other machines).
    """

    info: InstanceInfo
    threads: int
    rendezvous_fd: int | None = None
    memory_limit: int | None = None
    shared: Path | None = None


class Plugin(Protocol):
    """A framework's plugin. Options are what `options` made of the spec: text under names of its own."""

    name: str
    image: tuple[str, ...]
    """What a machine needs, as pip installs it."""
    modules: tuple[str, ...]
    """What must be importable, in the order of `image`."""
    serves: bool
    """Whether its ranks listen: each gets a port, `Peer.ports[name]`, held by the agent.

    The port is bound and not listened on; who binds it too must set SO_REUSEADDR.
    """
    stays: bool
    """Whether what listens there goes on when the ranks form a new group, and so its ports stay."""
    keeps_state: bool
    """Whether `keep_state` may have anything."""
    hidden: str
    """What of it waits for peers in native code and leaves no frame that would tell; "" if nothing."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """Its options from the spec, on the client; raises `OptionError` for a spec that it cannot serve."""
        ...

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """Modules the forge imports before it forks, none of which starts a device.

        `NAME=VALUE` among them sets a variable first, where importing needs it.
        """
        ...

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """Environment variables of a rank; pure."""
        ...

    def enter(self, place: RankContext, options: dict[str, str]) -> AbstractContextManager[None]:
        """Ready the framework in this process; leaving undoes it, also after a cut.

        Once per generation, in the order of `FRAMEWORKS`, and left in the opposite order. What it
        raises on entering is told; what it raises on leaving has the ranks forked anew.
        """
        ...

    def cut(self) -> bool:
        """Cut this process's communication, so that a collective that waits raises; whether there was any.

        Called on another thread than the one that waits.
        """
        ...

    def awaited_on_gpu(self) -> str:
        """A collective that a GPU has begun, or will, and not ended; "" if there is none, or it cannot be told."""
        ...

    def has_group(self) -> bool:
        """Whether there is a group over all ranks still: code may have destroyed it."""
        ...

    def leaves_open(self) -> bool:
        """Whether objects of users are in the midst of work with other ranks, after a run that failed."""
        ...

    def keep_state(
        self, folder: Path, generation: int, name_of: Callable[[object], str]
    ) -> str | None:
        """Keep the state of models for ranks begun in this generation, as one has died; in words, or "" if there is none.

        `folder` is this machine's for values; `name_of` says which name a cell gave an object, or "". None:
        what is here is not whole, and another rank is to be asked.
        """
        ...

    def regained(self) -> str:
        """What users made for the groups before and goes on in these, in words; "" if nothing does."""
        ...

    def steps(self, ended: str) -> dict[str, int]:
        """How many collectives were issued on each of its groups, by a name its ranks know it by.

        After a cell that `ended` so: "" if well, else how and where it failed, and what it called there of which nobody
        has the result. Ranks that tell
        different numbers are out of step, and form a new group.
        """
        ...


@dataclass(frozen=True)
class PlainPlugin:
    """What most plugins have in common: no server, nothing to cut, nothing to preload."""

    name: str
    image: tuple[str, ...]
    modules: tuple[str, ...]
    serves: bool = False
    stays: bool = False
    keeps_state: bool = False
    hidden: str = ""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """Nothing."""
        del spec, variant
        return {}

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """Its modules."""
        del options
        return self.modules

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """Nothing."""
        del info, options
        return {}

    def cut(self) -> bool:
        """There is nothing to cut."""
        return False

    def awaited_on_gpu(self) -> str:
        """Its ranks wait where they call it."""
        return ""

    def has_group(self) -> bool:
        """Nobody destroys it."""
        return True

    def leaves_open(self) -> bool:
        """Nothing is."""
        return False

    def keep_state(
        self, folder: Path, generation: int, name_of: Callable[[object], str]
    ) -> str | None:
        """It keeps none."""
        del folder, generation, name_of
        return ""

    def regained(self) -> str:
        """Nothing goes on."""
        return ""

    def steps(self, ended: str) -> dict[str, int]:
        """It counts none."""
        del ended
        return {}


MAY_CHANGE = "ranks of several machines take connections from all users of these: they could change what ranks send one another"
"""Why torch and JAX do not join machines of others unasked."""


def check_people(info: InstanceInfo, options: dict[str, str], why: str) -> None:
    """Raise UnsafeServer where other people may log in to this machine of several, unless that is accepted.

    On one machine, ranks are kept to the pool's owner. What comes from another machine has an
    address of the pool's, and may be of anybody there. `why` says what they could do.
    """
    several = len({peer.address for peer in info.peers}) > 1
    if several and TRUSTS not in options and (refusal := why_not_trusted(why)):
        raise UnsafeServer(refusal)


def check_platform(framework: str, package: str, info: InstanceInfo) -> None:
    """Raise RuntimeError where a framework found no GPU on a rank that has one, unless CPU was asked for."""
    on_cpu = os.environ.get("JAX_PLATFORMS", "").split(",")[0] == "cpu"
    if on_cpu or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return
    raise RuntimeError(
        f"rank {info.rank} of node {info.node} has a GPU ({info.accelerator or 'accelerator'}), and {framework} "
        f'would compute on the CPU: its build is one for CPUs, or does not fit the driver. Install "{package}" '
        "there (pip= on other machines), or ask for accelerator=none"
    )


def nccl_kept_to(interface: str) -> dict[str, str]:
    """NCCL kept to a network interface, where there is one that others reach."""
    # The sign means: this one, and not any whose name begins so.
    return {"NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}


def own_interface(info: InstanceInfo) -> str:
    """The interface at which other machines reach this one; "" where all are one machine."""
    if all(peer.address.startswith("127.") for peer in info.peers):
        return ""
    return next(peer.interface for peer in info.peers if peer.node == info.node)


def check_mesh(spec: PoolSpec, places: int, what: str) -> None:
    """Raise `OptionError` where a mesh is asked for that has not as many places as there are.

    As it does for one whose parts of the data would be split unevenly over ranks.
    """
    if spec.mesh and size_of(spec.mesh) != places:
        sizes = [str(size) for _, size in spec.mesh]
        product = "·".join(sizes) + " = " if len(sizes) > 1 else ""
        raise OptionError(
            "mesh",
            f"mesh={spell_mesh(spec.mesh)}: {product}{size_of(spec.mesh)}, and the pool has "
            f"{places} {what}. The product of the sizes must be that number.",
        )
    if spec.mesh and (why := uneven(spec.mesh, spec.world_size)):
        each = places // spec.world_size
        raise OptionError(
            "mesh",
            f"mesh={spell_mesh(spec.mesh)}: each of {spec.world_size} ranks has {each} of the "
            f"{places} {what}, and {why}. They must share a part wholly or not at all: a last axis "
            f"tp whose size divides {each}, or is a multiple of it, does that.",
        )
