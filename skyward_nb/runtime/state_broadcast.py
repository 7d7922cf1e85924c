"""One rank's state of a model given to all ranks of torch's default group, tensor by tensor."""

from __future__ import annotations

import io
import pickle
from typing import Any

_TensorWords = tuple[tuple[int, ...], Any]
"""A tensor's shape and dtype."""


class _Packing(pickle.Pickler):
    """Leaves plain tensors out, and holds them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        import torch

        if type(obj) is not torch.Tensor or obj.layout is not torch.strided or obj.is_quantized:
            return None
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _Unpacking(pickle.Unpickler):
    """Puts them in again."""

    def __init__(self, file: io.BytesIO, tensors: list[Any]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: int) -> Any:
        return self._tensors[pid]


class Broadcast:
    """What `source` has, on its way to all; with NCCL no more of it is on a GPU at once than its largest tensor."""

    def __init__(self, source: int, state: Any) -> None:
        """Collective. Raises what the pickling of objects that are no tensors raises, on all ranks."""
        import torch.distributed as dist

        told: list[Any] = [None]
        tensors: list[Any] = []
        if dist.get_rank() == source:
            try:
                told, tensors = _packed(state)
            except Exception as error:  # noqa: BLE001 - the others wait for it
                told = [f"{type(error).__name__}: {error}"]
        dist.broadcast_object_list(told, source)
        if isinstance(told[0], str):
            raise TypeError(f"the state of rank {source} cannot be sent ({told[0]})")
        self._data, words = told[0]
        own = tensors if dist.get_rank() == source else [None] * len(words)
        self._tensors = [
            _sent(source, tensor, *each) for tensor, each in zip(own, words, strict=True)
        ]

    def state(self) -> Any:
        """What was sent; raises what its unpickling raises."""
        return _Unpacking(io.BytesIO(self._data), self._tensors).load()


def _packed(state: Any) -> tuple[list[Any], list[Any]]:
    file = io.BytesIO()
    packing = _Packing(file)
    packing.dump(state)
    words: list[_TensorWords] = [(tuple(each.shape), each.dtype) for each in packing.tensors]
    return [(file.getvalue(), words)], packing.tensors


def _sent(source: int, tensor: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor on the CPU, of that rank."""
    import torch
    import torch.distributed as dist

    device = f"cuda:{torch.cuda.current_device()}" if dist.get_backend() == "nccl" else "cpu"
    if tensor is None:
        whole = torch.empty(shape, dtype=dtype, device=device)
    else:
        whole = tensor.detach().to(device).contiguous()
    if whole.numel():
        # As bytes: backends know few types.
        dist.broadcast(whole.reshape(-1).view(torch.uint8), source)
    return whole.cpu() if tensor is None else tensor
