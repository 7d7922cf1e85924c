"""A pool of two rented machines of which EC2 takes some back, and what tests look at while it does."""

from __future__ import annotations

import sys

import pytest
from pools import found, request, start
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool import registry
from skyward_nb.providers.aws import quoting, rental_records
from skyward_nb.words.image import Image
from skyward_nb.words.offers import InstanceType, Offer, Price, Quote
from skyward_nb.words.provider_access import AWSAccess

KIND = InstanceType(name="c6i.large", arch="x86_64", cpus=2, memory=4)
ZONES = ("us-east-1a", "us-east-1b")


def offer(*, spot, price):
    return Offer(
        type=KIND,
        region="us-east-1",
        zones=ZONES,
        spot=spot,
        price=Price(dollars=price, source="a test"),
    )


SPOT, ON_DEMAND = offer(spot=True, price=0.04), offer(spot=False, price=0.085)
PLACES = """
import socket, skyward_nb as sky
info = sky.instance_info()
peers = [(peer.node, peer.address) for peer in info.peers]
(info.rank, info.world_size, info.generation, info.head_addr, peers, socket.gethostname())
"""


OPTIONS = {
    "provider": "aws", "aws": AWSAccess(region="us-east-1"), "nodes": 2, "spot": "auto",
    "image": Image(interpreter=sys.executable), "on_preempt": "replace",
}  # fmt: skip


async def quote_of(spec):
    return Quote(nodes=spec.nodes, offers=(SPOT, ON_DEMAND))


class Kept:
    """A pool that tests have one after another; who comes after one that closed it has a new one."""

    def __init__(self, cloud, **options):
        self._cloud = cloud
        self._options = options
        self.pool = None

    def whole(self):
        """The pool, whose machines are all there are and all run."""
        if self.pool is None or self.pool.closed:
            self.close()
            self.pool = start(**{**OPTIONS, **self._options})
        assert self._names() == sorted(each.instance for each in self._cloud.machines)
        return self.pool

    def left_whole(self):
        """Nothing but a whole pool is there; else nothing of it is kept, and that is an error."""
        try:
            self._check()
        except BaseException:
            self.pool.close()
            self.pool = None
            self._cloud.reset()
            raise

    def _check(self):
        pool = self.pool
        pool.look(lambda _: None)
        assert not pool.closed and pool.is_ready and not pool.renewal.lacks
        until(lambda: self._names() == sorted(each.instance for each in self._cloud.machines))
        (entry,) = rental_records.entries()
        assert entry.record.pool_id == pool.pool_id
        assert sorted(each.instance for each in entry.record.machines) == self._names()

    def _names(self):
        return sorted(each.name for each in self.pool.context.generations.machines)

    def close(self):
        if self.pool is not None:
            self.pool.close()
        self._cloud.nothing_left()
        assert rental_records.entries() == []


def keeping(cloud, **options):
    """For a fixture of a module: a pool for its tests, of a cloud that has nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quoting, "quote_of", quote_of)
        kept = Kept(cloud, **options)
        try:
            yield kept
        finally:
            kept.close()


def machine_of(cloud, pool, node):
    name = pool.context.generations.machines[node].name
    (found,) = [each for each in cloud.machines if each.instance == name]
    return found


def taken_back(cloud, pool, node):
    """EC2 takes a node's machine back; returns its instance, once the pool knows."""
    machine = machine_of(cloud, pool, node)
    machine.reclaim()
    until(lambda: pool.look(lambda _: None))
    return machine.instance


def when_begun(what):
    """Watches a run, and does this once a rank says that it has begun."""
    began = []

    def watch(event):
        if not began and "begun" in getattr(event, "text", ""):
            began.append(event)
            what()

    return watch


def ran(pool, body, watch=lambda _: None, namespace=None):
    pool.look(lambda _: None)
    outcome = pool.run(request(pool, body, namespace), watch)
    return outcome, [
        unpack(end.value, pool.store) for _, end in sorted(outcome.done.items()) if end.value
    ]


def record():
    (entry,) = rental_records.entries()
    return entry.record


def left_alone(cloud, pool, *nodes):
    """Leave a pool, and have EC2 take nodes' machines back then; returns their instances."""
    machines = [machine_of(cloud, pool, node) for node in nodes]
    pool.leave()
    for machine in machines:
        machine.reclaim()
    return [machine.instance for machine in machines]


def attached(pool):
    """Another client that has attached to what there is."""
    again = found(pool)
    (entry,) = registry.entries()
    again.context.started, again.context.bill = entry.started, entry.bill
    again.attach(lambda _: None)
    return again
