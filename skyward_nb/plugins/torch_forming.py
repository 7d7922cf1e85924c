"""The default process group of a generation: the plugin's own, or one that user code forms.

Scripts begin with `init_process_group`, as under torchrun, though the group is there already. The
first such call takes the one that is there, or where it asks for another kind, has one formed in
its stead. However ranks are told to meet (`env://`, `tcp://`, `file://`), they meet at the store
that the pool holds: the port that a script names is bound by nobody, and would listen on every
address of the machine, or collide with a neighbour's.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

from skyward_nb.compat import torch_private
from skyward_nb.words.info import InstanceInfo

_SCHEMES = ("env", "tcp", "file")
_here: Forming | None = None
"""What the calls of user code are heeded by; None between generations."""


class Forming:
    """Forms the groups of one generation at its place, over its store; `timeout` None is torch's own."""

    def __init__(
        self, info: InstanceInfo, store: Any, backend: str, timeout: timedelta | None
    ) -> None:
        self._info = info
        self._store: Any = store
        self._backend = backend
        self._timeout = timeout
        self._count = 0
        self._own: weakref.ref[Any] | None = None
        self._pid = os.getpid()

    def form(self) -> None:
        """Form the plugin's own group; raises what torch raises."""
        import torch.distributed as dist

        _name_alike()
        dist.init_process_group(
            self._backend,
            store=self.prefixed(),
            rank=self._info.rank,
            world_size=self._info.world_size,
            timeout=self._timeout,
        )
        self.adopt()

    def adopt(self) -> None:
        """Take the default group that is there for the plugin's own."""
        import torch.distributed as dist

        self._own = weakref.ref(dist.group.WORLD)

    def prefixed(self) -> Any:
        """The store, for a group more: none finds the words of an earlier one there."""
        import torch.distributed as dist

        self._count += 1
        prefix = f"generation{self._info.generation}/{self._count}"
        return dist.PrefixStore(prefix, self._store)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def heeded(self) -> Generator[None]:
        """Meanwhile, user code that forms a group is heeded; afterwards the store is let go."""
        global _here
        _here = self
        try:
            with _in_place_of_torchs():
                yield
        finally:
            _here = None
            self._store = self._own = None

    def is_of_this_process(self) -> bool:
        """False in a process that a rank has forked: its groups are its own."""
        return self._pid == os.getpid()

    def takes(self, asked: dict[str, Any]) -> bool:
        """Whether this call of `init_process_group` gets the group that is there.

        Else the group that is there is destroyed, if it is the plugin's, and `asked` is completed:
        torch is to form another, or to say that there is one already. Raises ValueError for a place
        that this rank has not.
        """
        import torch.distributed as dist

        own = self._own() if self._own is not None else None
        there = dist.group.WORLD
        if there is not None and there is not own:
            return False
        if asked.get("store") is None and _meets_here(asked.get("init_method")):
            self.check(asked.get("rank", -1), asked.get("world_size", -1))
            if there is not None and self._is_alike(asked):
                self._own = None
                return True
            self._complete(asked)
        self._own = None
        if there is not None:
            dist.destroy_process_group()
        _name_alike()
        return False

    def check(self, rank: object, world_size: object) -> None:
        """Raise ValueError where a rank or world size is named that is not this one's."""
        info = self._info
        wrong = [
            f"{name}={said}"
            for name, said, true in (
                ("rank", rank, info.rank),
                ("world_size", world_size, info.world_size),
            )
            if said not in (None, -1, true)
        ]
        if wrong:
            ranks = f"{info.world_size} rank{'s' * (info.world_size != 1)}"
            raise ValueError(
                f"init_process_group({', '.join(wrong)}): the pool has {ranks}, and this is rank "
                f"{info.rank}; leave both out, or take RANK and WORLD_SIZE from the environment"
            )

    def met(self, rank: int, world_size: int) -> tuple[Any, int, int]:
        """What torch needs of ranks that meet; raises as `check` does."""
        self.check(rank, world_size)
        return self.prefixed(), self._info.rank, self._info.world_size

    def _is_alike(self, asked: dict[str, Any]) -> bool:
        """Whether the plugin's own group is what is asked for."""
        backend, timeout = asked.get("backend"), asked.get("timeout")
        device = asked.get("device_id")
        return (
            (backend is None or str(backend).lower() == self._backend)
            and (timeout is None or timeout == _timeout_of(self._backend, self._timeout))
            and asked.get("pg_options") is None
            and (device is None or getattr(device, "type", "") == "cpu")
        )

    def _complete(self, asked: dict[str, Any]) -> None:
        """What is not said is as the pool was made."""
        if asked.get("backend") is None and asked.get("device_id") is None:
            asked["backend"] = self._backend
        if asked.get("timeout") is None and self._timeout is not None:
            asked["timeout"] = self._timeout


def _name_alike() -> None:
    """Have the next default group be named as on all ranks, though one was not formed on this rank.

    Groups are numbered as they are begun, and ranks that number them differently never meet.
    """
    torch_private.number_groups_anew()


def _timeout_of(backend: str, timeout: timedelta | None) -> timedelta:
    """How long collectives of a group may take that was formed with this."""
    return timeout or torch_private.timeout_of(backend)


def _meets_here(init_method: object) -> bool:
    """Whether ranks that are told to meet like this meet at the pool's store."""
    return not init_method or urlparse(str(init_method)).scheme in _SCHEMES


@contextmanager
def _in_place_of_torchs() -> Generator[None]:
    """Meanwhile, `init_process_group` and torch's ways to meet are ours."""
    import torch.distributed as dist

    module = torch_private.group_module()
    make = module.init_process_group
    ways = torch_private.ways_to_meet()
    before = dict(ways)
    ours = _heeding(make)
    dist.init_process_group = module.init_process_group = ours
    ways.update({scheme: _meeting(before[scheme]) for scheme in _SCHEMES if scheme in before})
    try:
        yield
    finally:
        dist.init_process_group = module.init_process_group = make
        ways.update(before)


@functools.cache
def _heeding(make: Callable[..., None]) -> Callable[..., None]:
    """The `init_process_group` of torch, heeded. One function for good: names of user code may hold it."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if _here is None or not _here.is_of_this_process():
            return make(*args, **kwargs)
        try:
            asked = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return make(*args, **kwargs)  # torch says it better
        return None if _here.takes(asked) else make(**asked)

    return init_process_group


def _meeting(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A way to meet that yields (store, rank, world size) of the pool, whatever the URL says."""

    def meet(url: str, *args: Any, **kwargs: Any) -> Generator[tuple[Any, int, int]]:
        if _here is None or not _here.is_of_this_process():
            yield from handler(url, *args, **kwargs)
            return
        said = parse_qs(urlparse(url).query)
        rank, world_size = (int(said.get(key, ["-1"])[-1]) for key in ("rank", "world_size"))
        yield _here.met(rank, world_size)
        raise RuntimeError("ranks of a pool meet once for a group")

    return meet
