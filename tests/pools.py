"""Real pools in a test's own process, without a notebook."""

from __future__ import annotations

import contextlib

import psutil
from leaks import traces

from skyward_nb.cell.source import compile_cell
from skyward_nb.pickling.payload import unpack
from skyward_nb.pool import registry
from skyward_nb.pool.outcome import RunRequest
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.message_parts import RunCard
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.errors import PoolError
from skyward_nb.words.spec import PoolSpec

KILLED = (
    r"killed by SIGKILL(?: \(from outside; no sign of memory running out\)"
    r"|, perhaps because memory ran out: oom_kill of .+ rose by \d+, that of its own control group did not(?:; it held .+)?)"
)
"""What is said of a rank that a test killed: memory may run out for another test, and the machine counts that of all."""


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


def why_failed(outcome):
    """A line of each rank that failed or was lost, in few words: of a test's report little may be left."""
    lost = (f"rank {rank} {each.how} {each.stack}" for rank, each in sorted(outcome.lost.items()))
    failed = (
        f"rank {end.rank}: {end.failure.type_name}: {end.failure.message}" for end in outcome.failed
    )
    return "\n".join([*lost, *failed])


def values(pool, body, namespace=None):
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body, namespace), lambda _: None)
    assert not outcome.failed, why_failed(outcome)
    return [unpack(end.value, pool.store) for _, end in sorted(outcome.done.items())]


def follow(pool, watch):
    """How the run ends that went on when this pool was attached."""
    with contextlib.ExitStack() as calm:
        return pool.runs.finish(pool.runs.follow(pool.runs.unseen, calm), watch)


def start(**options):
    """A pool of two ranks unless it is said otherwise; who is slow to obey is not killed for it."""
    spec = PoolSpec(**{"nodes": 2, "grace": 20.0, **options})
    pool = Pool(spec, PROVIDERS[spec.provider](), lambda _: None)
    pool.start(lambda _: None)
    return pool


def paused(pool, seconds):
    """As if nobody had listened for so long."""
    pool.lines._looked -= seconds
    for link in pool.lines.links:
        link.heard -= seconds


def found(pool):
    """Another client's view of a pool."""
    (entry,) = [each for each in registry.entries() if each.pool_id == pool.pool_id]
    return Pool(entry.spec, PROVIDERS[entry.spec.provider](), lambda _: None, pool_id=pool.pool_id)


class Lender:
    """Pools that the tests of a file use one after another; each test has its own as if it were new.

    A pool that a test leaves whole is kept and its ranks begin anew, which takes a tenth of a start.
    """

    def __init__(self):
        self._kept = {}
        self._lent = []

    def lend(self, **options):
        """A pool of these options, as `start` makes it."""
        asked = repr(sorted(options.items()))
        pool = self._kept.pop(asked, None) or start(**options)
        self._lent.append((asked, pool))
        return pool

    def take_back(self):
        """Keep what can be lent again, and close the rest."""
        while self._lent:
            asked, pool = self._lent.pop()
            if asked not in self._kept and _begins_anew(pool):
                self._kept[asked] = pool
            else:
                pool.close()

    def close(self):
        """Close what is kept."""
        self.take_back()
        while self._kept:
            self._kept.popitem()[1].close()

    def kept(self):
        """What there is of the pools that are kept, as `leaks.traces` names it."""
        return set().union(*(_traces_of(pool) for pool in self._kept.values()))


def _begins_anew(pool):
    """Whether a pool is whole, and its ranks new."""
    if pool.closed:
        return False
    try:
        pool.restart(lambda _: None)
    except PoolError:
        return False
    return True


def _traces_of(pool):
    """The folders of a pool, and its agents, forges and ranks; nothing that these have started."""
    processes = set(pool.pids.values())
    for machine in pool.context.generations.machines:
        local = getattr(machine, "_here", machine)
        with contextlib.suppress(psutil.NoSuchProcess):
            agent = psutil.Process(local._agent.pid)
            processes |= {agent.pid, *(child.pid for child in agent.children()[:1])}
    folders = {each for each in traces() if pool.pool_id in each}
    return folders | {f"{kind} {pid}" for kind in ("process", "child") for pid in processes}
