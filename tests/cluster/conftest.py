"""Hosts and kernels for tests: those of a module, emptied after each test; and new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest
from cluster import notebooks
from cluster.box import why_no_boxes
from cluster.town import Town, Towns
from leaks import leaves_nothing

_why_not = cache(why_no_boxes)


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Towns]:
    if why := _why_not():
        pytest.skip(why)
    made = Towns(tmp_path_factory.mktemp("towns"))
    yield made
    made.close()


@pytest.fixture
def hosts(towns: Towns) -> Iterator[Callable[..., Town]]:
    """`hosts(2)` are two machines that one can log in to; see `Town` and `Host` for what they can.

    The tests of a module have the same ones, emptied after each: what they keep is this package.
    """
    yield towns.lend
    towns.take_back()


@pytest.fixture
def new_hosts(tmp_path: Path) -> Iterator[Callable[..., Town]]:
    """The same, and they are gone after the test."""
    if why := _why_not():
        pytest.skip(why)
    made: list[Town] = []

    def make(count: int, **options: object) -> Town:
        made.append(Town(count, tmp_path / f"town{len(made)}", **options))
        return made[-1]

    yield make
    for town in made:
        town.close()


@pytest.fixture(scope="module")
def kernel_of_module() -> Iterator[notebooks.KernelOfModule]:
    made = notebooks.KernelOfModule()
    yield made
    made.close()


@pytest.fixture
def notebook(kernel_of_module: notebooks.KernelOfModule):
    """`with notebook(town) as book`, in the kernel of the module."""
    return partial(notebooks.notebook, lender=kernel_of_module)


@pytest.fixture(scope="module")
def pool_of_module(request, tmp_path_factory) -> Iterator[notebooks.PoolOfModule]:
    """On as many hosts as the module's HOSTS, with its OPTIONS."""
    if why := _why_not():
        pytest.skip(why)
    made = notebooks.PoolOfModule(
        request.module.HOSTS,
        getattr(request.module, "OPTIONS", ""),
        tmp_path_factory.mktemp("pool"),
    )
    yield made
    made.close()


@pytest.fixture
def book(pool_of_module: notebooks.PoolOfModule) -> Iterator[notebooks.TownNotebook]:
    """A notebook with a pool that is up: that of the module, whose ranks know nothing yet."""
    book = pool_of_module.book
    with leaves_nothing() as before:
        yield book
        before.add(f"child {book.kernel.manager.provisioner.pid}")
        book.town.mend()
    pool_of_module.renew()
