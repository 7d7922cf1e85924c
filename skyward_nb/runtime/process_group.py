"""Operations over all ranks of the frameworks that a rank was prepared for.

Plugins enter theirs; `sky.barrier`, `sky.mesh` and others find them here. A rank knows no plugins.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from skyward_nb.words.mesh import Axes


class ProcessGroup(Protocol):
    """All ranks, as one framework joins them."""

    name: str

    def barrier(self) -> None:
        """Wait for all ranks."""
        ...

    def mesh(self, axes: Axes) -> Any:
        """All its devices, arranged; raises ValueError where their number does not fit."""
        ...


@runtime_checkable
class SummingGroup(Protocol):
    """A group whose framework adds tensors of its own over some ranks, within code that it compiles, too."""

    def add(self, tensor: Any, ranks: tuple[int, ...]) -> Any:
        """The sum of a tensor of one dimension over these ranks; collective among them.

        Not differentiable; the tensor may be overwritten.
        """
        ...


entered: dict[str, ProcessGroup] = {}
"""By the framework's name, in the order they were readied."""
