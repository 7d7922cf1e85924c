"""JAX's private names: where gloo listens, the options it has, arrays of a weak type, classes that it takes apart.

Whether it has found its devices is asked, too. Where gloo is made in another way, it listens where it would; an array without the primitive that
makes a type weak, and options that are kept elsewhere, raise AttributeError.

Source: `jax._src.xla_bridge.make_cpu_client`.

Seen with jax 0.10.2.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias


@contextmanager
def gloo_listening_on(address: str) -> Generator[None]:
    """Meanwhile, gloo is made to listen on this address, whatever the host's name means."""
    from jax._src import xla_bridge

    inside: Any = getattr(xla_bridge, "_jax", None)
    if inside is None:  # before jax 0.6.1
        inside = getattr(getattr(xla_bridge, "xla_client", None), "_xla", None)
    make = getattr(inside, "make_gloo_tcp_collectives", None)
    if make is None:
        yield
        return
    inside.make_gloo_tcp_collectives = functools.partial(make, hostname=address)
    try:
        yield
    finally:
        inside.make_gloo_tcp_collectives = make


def has_backends() -> bool:
    """Whether JAX has found its devices: to ask it for arrays has it do so, with all other ranks."""
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


def options() -> dict[str, Any]:
    """JAX's options by name, as they are now."""
    import jax

    return dict(jax.config.values)


def of_a_weak_type(array: Any) -> Any:
    """The array as one whose type gives way to that of others, as a Python number's does."""
    import jax

    return jax.lax.convert_element_type_p.bind(
        array, new_dtype=array.dtype, weak_type=True, sharding=None
    )


TreeWay: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]
"""How objects of a class are taken apart into leaves, and made of them again."""


def way_apart(cls: type) -> TreeWay | None:
    """How JAX takes objects of a class apart, where it was told; None also where JAX was not imported."""
    module = sys.modules.get("jax._src.tree_util")
    entry = getattr(module, "_registry", {}).get(cls)
    return None if entry is None else (entry.to_iter, entry.from_iter)


def take_apart(cls: type, way: TreeWay) -> None:
    """Tell JAX how to take objects of a class apart, unless it knows."""
    import jax

    with suppress(ValueError):
        jax.tree_util.register_pytree_node(cls, *way)
