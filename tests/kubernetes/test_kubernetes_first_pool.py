"""A pool on a real cluster of this machine comes up, runs and ends: also among the quick tests, where Kubernetes is there."""

import json
import os

from kubernetes.town import NODES, phases, pods_of
from pools import values

from skyward_nb.providers.kubernetes.pod_records import PodRecord

_WHERE = """
import os, socket
def status(word):
    return next(line.split()[1] for line in open('/proc/self/status') if line.startswith(word))
(os.environ['RANK'], socket.gethostname(), status('CapEff'), status('NoNewPrivs'), status('Seccomp'),
 os.path.exists('/var/run/secrets/kubernetes.io'), os.environ.get('SKYWARD_SECRET'),
 os.statvfs('/dev/shm').f_blocks * os.statvfs('/dev/shm').f_frsize > 64 << 20,
 open('/proc/1/cmdline').read().split(chr(0))[0])
"""


def test_a_pool_comes_up_on_its_nodes_and_nothing_is_left(kubernetes, cluster, monkeypatch):
    monkeypatch.setenv("SKYWARD_SECRET", "hunter2")
    pool, events = kubernetes(ranks_per_node=2), []
    pool.start(events.append)
    assert phases(events)[0] == "asking Kubernetes for pods"
    pods = pods_of(pool)
    # One for all scripts and the stream of commands after them, one for the package.
    assert [cluster.execs(pod) for pod in pods] == [2, 2]
    placed = json.loads(cluster.say("get", "pods", "-o", "json"))["items"]
    assert sorted(each["spec"]["nodeName"] for each in placed) == [*NODES]
    told = values(pool, _WHERE)
    assert [each[0] for each in told] == ["0", "1", "2", "3"]
    assert [each[1] for each in told] == [pods[0], pods[0], pods[1], pods[1]]
    # No capability, no way to more rights, no token, none of the notebook's variables; room in /dev/shm.
    assert {each[2:] for each in told} == {("0" * 16, "1", "2", False, None, True, "/bin/sh")}
    large = os.urandom(3 << 20)
    assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 4
    pool.close()
    assert cluster.is_empty()
    assert not pool.closing.may_run
    assert not PodRecord.every()
