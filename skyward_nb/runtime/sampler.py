"""`sky.DistributedSampler`: torch's sampler, placed by the pool. Imported when first named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skyward_nb.runtime.sync import data_place
from skyward_nb.words.errors import MissingDependency

try:
    from torch.utils.data import DistributedSampler as _Sampler
except ModuleNotFoundError as _error:
    if (_error.name or "").partition(".")[0] != "torch":
        raise
    raise MissingDependency(
        "torch", "sky.DistributedSampler", 'pip install "skyward-nb[torch]"'
    ) from None

if TYPE_CHECKING:
    from torch.utils.data import Dataset


class DistributedSampler(_Sampler[Any]):
    """This rank's positions in a data set, for a `DataLoader`; the same number on every rank.

    A `torch.utils.data.DistributedSampler` that takes its place from the pool, so it needs no
    process group. What does not divide evenly is made up by items that come twice, or left out
    with `drop_last`. Ranks along `tp` of a mesh get the same. With `shuffle`, call `set_epoch` before
    each epoch: else all have one order. Raises TypeError for what has no length.
    """

    def __init__(
        self, dataset: Dataset[Any], shuffle: bool = True, seed: int = 0, drop_last: bool = False
    ) -> None:
        if not hasattr(dataset, "__len__"):
            raise TypeError(
                f"sky.DistributedSampler: {type(dataset).__name__} has no length to take positions "
                "of; give a data set with __len__ and __getitem__, or list(...) of it"
            )
        index, count = data_place()
        super().__init__(
            dataset, num_replicas=count, rank=index, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
