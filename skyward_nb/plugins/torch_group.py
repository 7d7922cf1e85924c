"""The default process group of a rank: formed before code runs, and again when code asks for it.

Under torchrun a script's first `init_process_group` forms the group. Here it is there already, so
the first call takes it as it is, or has it formed anew if it asks for another kind. What comes
after that is torch's own: a second call fails, and after `destroy_process_group` one succeeds.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.mesh import Axes

_OURS = (None, "env://")
_REST = 0.01


class DefaultGroup:
    """Forms the group over a `store` that lives as long as the generation, each time under other keys."""

    name = "torch"

    def __init__(
        self, info: InstanceInfo, store: Any, backend: str, timeout: timedelta | None
    ) -> None:
        import torch.distributed as dist

        self._info = info
        self._store = store
        self._backend = backend
        self._torchs_own = dist.init_process_group
        self._torchs_destroy = dist.destroy_process_group
        self._retired: list[Any] = []
        self._is_unasked = True
        self._formed = 0
        self._meshes: dict[Axes, Any] = {}
        self._form(backend, timeout=timeout)

    @contextmanager
    def asked_by_code(self) -> Generator[None]:
        """Meanwhile, code that calls `init_process_group` is answered by this."""
        import torch.distributed as dist
        from torch.distributed import distributed_c10d as home

        dist.init_process_group = home.init_process_group = self.init_process_group
        dist.destroy_process_group = home.destroy_process_group = self.destroy_process_group
        try:
            yield
        finally:
            dist.init_process_group = home.init_process_group = self._torchs_own
            dist.destroy_process_group = home.destroy_process_group = self._torchs_destroy
            self._let_go()

    def init_process_group(
        self,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        **more: Any,
    ) -> None:
        """As torch's own; raises ValueError for a rank or a number of ranks that is not this pool's."""
        import torch.distributed as dist

        is_own = store is not None or not (init_method in _OURS or init_method.startswith("tcp://"))
        if not is_own:
            self._check(rank, world_size)
        is_first, self._is_unasked = self._is_unasked and dist.is_initialized(), False
        plain = not (timeout or any(more.values()))
        if is_own:
            if is_first:
                self.destroy_process_group()
            self._torchs_own(backend, init_method, timeout, world_size, rank, store, **more)
            return
        if is_first and plain and backend in (None, "", self._backend):
            return
        if dist.is_initialized() and not is_first:
            self._torchs_own(backend)  # raises, in torch's own words
        if is_first:
            self.destroy_process_group()
        self._form(backend, timeout=timeout, **more)

    def destroy_process_group(self, group: Any = None) -> None:
        """As torch's own; but the groups' memory is freed later.

        The last one to let go of a group, often a DDP model, waits for gloo's threads while it holds
        the interpreter, and they wait for the interpreter if they have just done something.
        """
        from torch.distributed.distributed_c10d import _world

        self._retired += list(_world.pg_map)
        self._torchs_destroy(group)

    def _let_go(self) -> None:
        """Free groups that were destroyed before, once their threads have had time to come to rest."""
        if self._retired:
            time.sleep(_REST)
            self._retired.clear()

    def _check(self, rank: int, world_size: int) -> None:
        here, all_of_them = self._info.rank, self._info.world_size
        if rank not in (-1, here) or world_size not in (-1, all_of_them):
            raise ValueError(
                f"init_process_group(rank={rank}, world_size={world_size}): this is rank {here} of "
                f"the {all_of_them} ranks of the pool. Leave both out, or take them from "
                "os.environ['RANK'] and os.environ['WORLD_SIZE']."
            )

    def _form(self, backend: str | None, **more: Any) -> None:
        """Form the group; collective."""
        import torch.distributed as dist

        self._formed += 1
        self._meshes.clear()
        prefix = f"generation{self._info.generation}/{self._formed}"
        self._torchs_own(
            backend,
            store=dist.PrefixStore(prefix, self._store),  # pyright: ignore[reportPrivateImportUsage]
            rank=self._info.rank,
            world_size=self._info.world_size,
            **more,
        )
        self._let_go()

    # ── for `sky.barrier` and `sky.mesh` ────────────────────────────────────────────────

    def barrier(self) -> None:
        """Wait for all ranks; raises RuntimeError where code has destroyed the group."""
        import torch.distributed as dist

        self._check_is_there()
        dist.barrier()

    def mesh(self, axes: Axes) -> Any:
        """A `DeviceMesh` over all ranks; collective when it is first made."""
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        self._check_is_there()
        axes = axes or (("fsdp", dist.get_world_size()), ("tp", 1))
        if axes not in self._meshes:
            on_gpu = self._info.accelerators > 0 or "nccl" in str(dist.get_backend())
            kind = "cuda" if on_gpu else "cpu"
            sizes, names = tuple(size for _, size in axes), tuple(name for name, _ in axes)
            self._meshes[axes] = init_device_mesh(kind, sizes, mesh_dim_names=names)
        return self._meshes[axes]

    def _check_is_there(self) -> None:
        import torch.distributed as dist

        if not dist.is_initialized():
            raise RuntimeError(
                "code has destroyed the process group: torch.distributed.init_process_group() "
                "forms it anew"
            )
