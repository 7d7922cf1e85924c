"""`profile=` of a run on a rank: who records for which framework, and the recording on its way home."""

from __future__ import annotations

import importlib
from typing import Protocol

from msgspec.structs import replace

from skyward_nb.pickling.payload import pack
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.profile import CommProfile

_RECORDINGS = {"torch": ("skyward_nb.plugins.torch_profile", "TorchRecording")}
"""By plugin, what records a run."""


class Recording(Protocol):
    """What records one run; none of it raises but for an interrupt."""

    def begin(self) -> None:
        """Record from now on."""
        ...

    def end(self) -> None:
        """Record no more."""
        ...

    def result(self, info: InstanceInfo, base: int, *, in_haste: bool = False) -> CommProfile:
        """What was recorded; takes a while, and can be interrupted."""
        ...

    def without(self, why: str) -> CommProfile:
        """A profile that says only why there is none."""
        ...


def recording(wanted: str, plugins: list[str]) -> Recording | None:
    """What records a run as `profile=` asks for it; None where it does not."""
    name = next((name for name in plugins if name in _RECORDINGS), None)
    if not wanted or name is None:
        return None
    module, kind = _RECORDINGS[name]
    return getattr(importlib.import_module(module), kind)()


def packed(profile: CommProfile, store: BlobStore, limit: int | None) -> Packed:
    """A profile as it goes home; without its traces where they do not fit."""
    bundle = pack("the profile", profile)
    if limit is not None and bundle.size > limit:
        return _without_traces(profile, "the trace is over the limit= of what may come back", store)
    try:
        return bundle.stow(store)
    except OSError as error:
        return _without_traces(profile, f"no room for the trace: {error.strerror}", store)


def _without_traces(profile: CommProfile, why: str, store: BlobStore) -> Packed:
    less = replace(profile, trace=b"", events=b"", trouble=why)
    return pack("the profile", less).stow(store)
