"""Real pools in a test's own process, without a notebook."""

from __future__ import annotations

from skyward_nb.cell.source import compile_cell
from skyward_nb.pool import registry
from skyward_nb.pool.outcome import RunRequest
from skyward_nb.pool.pool import Pool
from skyward_nb.providers.table import PROVIDERS
from skyward_nb.wire.payload import unpack
from skyward_nb.words.parts import RunCard
from skyward_nb.words.spec import PoolSpec


def cell(body):
    return compile_cell(
        "",
        body,
        transform=lambda text: text,
        transform_ast=lambda tree: tree,
        name_file=lambda code, text: f"<cell {hash(text)}>",
    )


def request(pool, body, namespace=None, ranks=None, **card):
    made = cell(body)
    ranks = pool.ranks if ranks is None else ranks
    return RunRequest(
        cell=made, number=1, namespace=namespace or {}, ranks=ranks, value_from=ranks,
        wants_value=made.has_value, card=RunCard(**card),
    )  # fmt: skip


def values(pool, body, namespace=None):
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body, namespace), lambda _: None)
    assert not outcome.failed, outcome.failed
    return [unpack(end.value, pool.store) for _, end in sorted(outcome.done.items())]


def start(**options):
    """A pool of two ranks unless it is said otherwise; who is slow to obey is not killed for it."""
    spec = PoolSpec(**{"nodes": 2, "grace": 20.0, **options})
    pool = Pool(spec, PROVIDERS[spec.provider](), lambda _: None)
    pool.start(lambda _: None)
    return pool


def found(pool):
    """Another client's view of a pool."""
    (entry,) = [each for each in registry.entries() if each.pool_id == pool.pool_id]
    return Pool(entry.spec, PROVIDERS[entry.spec.provider](), lambda _: None, pool_id=pool.pool_id)
