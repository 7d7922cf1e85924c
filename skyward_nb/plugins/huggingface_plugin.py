"""Hugging Face: Trainer and Accelerator see the process group that torch's plugin has formed.

Accelerate keeps what it knows of the processes for as long as a process lives; here that is more
than one life of a group. The token goes to the ranks in a variable, and into no message of this package.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from skyward_nb.compat import accelerate_private
from skyward_nb.plugins.plugin_base import PlainPlugin, RankContext
from skyward_nb.runtime import event_sink
from skyward_nb.words.info import InstanceInfo

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

_TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name
_USE_CPU = "ACCELERATE_USE_CPU"


@dataclass(frozen=True)
class HuggingFacePlugin(PlainPlugin):
    """`huggingface`: `transformers`, `datasets`, `tokenizers`, `accelerate`, on torch."""

    def options(self, spec: PoolSpec, variant: str) -> dict[str, str]:
        """`token`, where the notebook has one: in env=, in its environment, or logged in."""
        del variant
        token = spec.variables.get(_TOKEN) or os.environ.get(_TOKEN) or _logged_in()
        return {"token": token} if token else {}

    def preload(self, options: dict[str, str]) -> tuple[str, ...]:
        """What a first Trainer would import.

        Arrow's jemalloc, which it does not use, would start a thread, and nothing with threads is
        forked.
        """
        del options
        return (
            "JE_ARROW_MALLOC_CONF=background_thread:false",
            "accelerate",
            "datasets",
            "transformers.trainer",
        )

    def env(self, info: InstanceInfo, options: dict[str, str]) -> dict[str, str]:
        """The token; on CPU the word without which every rank would train a copy of its own.

        And where ranks share a GPU, that DDP is not given the one with the rank's number: there is none.
        """
        on_cpu = {} if info.real_accelerators else {_USE_CPU: "true"}
        is_shared = 0 < info.real_accelerators < info.workers_per_node
        shared = {"ACCELERATE_BYPASS_DEVICE_MAP": "true"} if is_shared else {}
        token = options.get("token")
        return on_cpu | shared | ({_TOKEN: token} if token else {})

    @contextmanager
    def enter(self, place: RankContext, options: dict[str, str]) -> Generator[None]:
        """Let each Accelerator find the existing group."""
        del place, options
        import accelerate

        make, know = accelerate.Accelerator.__init__, accelerate.PartialState.__init__
        accelerate.Accelerator.__init__ = _looking_first(make)
        accelerate.PartialState.__init__ = _seeing_all(know)
        try:
            yield
        finally:
            accelerate.Accelerator.__init__ = make
            accelerate.PartialState.__init__ = know
            _part()


def _looking_first(make: Callable[..., None]) -> Callable[..., None]:
    """Accelerator's `__init__`, which forgets what is known of a group that code has destroyed.

    Scripts end with `end_training()`, which destroys it; the next one begins as in a new process.
    """

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - what it is
        if _has_lost_its_group():
            accelerate_private.forget()
        make(self, *args, **kwargs)

    return __init__


def _seeing_all(make: Callable[..., None]) -> Callable[..., None]:
    """PartialState's `__init__`, which heeds the variable that Accelerator heeds.

    Else one that is made first takes a rank on CPU for a process alone, and so does every
    Accelerator after it: each would train a copy of its own. A cell that begins with it after
    another one has destroyed the group has it formed anew; accelerate itself asks it at any time.
    """
    met_in = 0

    @functools.wraps(make)
    def __init__(self: Any, cpu: bool = False, **kwargs: Any) -> None:  # noqa: N807 - what it is
        nonlocal met_in
        if not _has_lost_its_group():
            met_in = event_sink.run()
        elif met_in != event_sink.run() and not _is_own(sys._getframe(1)):
            accelerate_private.forget_processes(self)
            met_in = event_sink.run()
        make(self, cpu or os.environ.get(_USE_CPU) == "true", **kwargs)

    return __init__


def _has_lost_its_group() -> bool:
    """Whether accelerate knows of a group that is there no more."""
    import torch.distributed as dist

    return accelerate_private.knows_a_group() and not dist.is_initialized()


def _is_own(caller: FrameType) -> bool:
    """Whether it is Hugging Face's code that runs here, and not a person's."""
    return caller.f_globals.get("__name__", "").partition(".")[0] in ("accelerate", "transformers")


def _part() -> None:
    """Have accelerate know nothing of the group that ends.

    That a rank is one of so many on such a device stays true, so an Accelerator of before is good in
    the next generation, too. What holds groups itself, a mesh or sharded parameters, ends with them.
    """
    known = accelerate_private.known()
    kind = known.get("distributed_type")
    if known.get("device_mesh") is not None or (kind and not kind.value.startswith("MULTI_")):
        accelerate_private.forget()
    else:
        accelerate_private.leave_loops()


def _logged_in() -> str | None:
    """The token of `hf auth login` on this machine."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import get_token

    return get_token()


PLUGIN = HuggingFacePlugin(
    "huggingface",
    image=("transformers>=4.50", "datasets>=3", "tokenizers>=0.20", "accelerate>=1.2"),
    modules=("transformers", "datasets", "tokenizers", "accelerate"),
)
