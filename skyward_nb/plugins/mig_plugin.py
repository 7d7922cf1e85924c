"""MIG: each rank sees its own slice of a GPU, and no other device.

Which slices a node has, its agent looks up and adds to the options as `devices`: that is known there
alone. CUDA gives a process one slice at most, so the rank's is device 0 to it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyward_nb.plugins.plugin_base import PlainPlugin, RankContext
from skyward_nb.words.errors import OptionError
from skyward_nb.words.info import InstanceInfo

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec


@dataclass(frozen=True)
class MigPlugin(PlainPlugin):
    """`mig`: CUDA_VISIBLE_DEVICES names the rank's slice."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """`profile` of the slices, the name of the `accelerator`, and `partition` if it is to be cut."""
        assert spec.accelerator is not None
        if "CUDA_VISIBLE_DEVICES" in spec.variables:
            raise OptionError(
                "env", "env= cannot set CUDA_VISIBLE_DEVICES: mig= gives each its slice"
            )
        partition = {"partition": "yes"} if spec.partition else {}
        return {"profile": variant, "accelerator": spec.accelerator.name, **partition}

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """The slice of the rank's slot among `devices`, those of its node.

        And the leave that NCCL asks for before it joins slices of one GPU, which it does from 2.30
        on: https://github.com/NVIDIA/nccl/issues/1716.
        """
        if "devices" not in options:
            return {}
        return {
            "CUDA_VISIBLE_DEVICES": options["devices"].split(",")[info.local_rank],
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        }

    @contextmanager
    def enter(self, place: RankContext, options: dict[str, str]) -> Generator[None]:
        """There is nothing to ready."""
        del place, options
        yield


PLUGIN = MigPlugin("mig", image=(), modules=())
