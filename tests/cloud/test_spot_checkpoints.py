"""A spot machine that EC2 takes back in a cell, and ranks that go on from a bucket of S3 on another one.

Each machine reaches S3 at its own loopback, and has credentials of its role alone, by its metadata.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cloud.imds import listening
from cloud.replaced import OPTIONS, machine_of, quote_of, ran, when_begun
from later import Later

from skyward_nb.providers.aws import quoting

boto3 = Later("boto3")
moto_app = Later("moto.moto_server.werkzeug_app")
serving = Later("werkzeug.serving")

pytestmark = pytest.mark.timeout(300)
PORT = 5987
ENV = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}", "AWS_DEFAULT_REGION": "us-east-1"}


class Buckets:
    """S3 as moto plays it, in the networks of machines."""

    def __init__(self, cloud):
        self._cloud = cloud
        self._app = moto_app.DomainDispatcherApplication(moto_app.create_backend_app)
        self._servers = []
        self._known = set()

    def client(self):
        server = self._serve(serving.make_server("127.0.0.1", 0, self._app, threaded=True))
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        url = f"http://127.0.0.1:{server.server_port}"
        return boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)

    def reach(self, *_):
        """Have all machines of the cloud reach it, and tell them the credentials of their role."""
        for machine in self._cloud.machines:
            if machine.instance in self._known:
                continue
            with contextlib.suppress(OSError), listening(machine.pid, "127.0.0.1", PORT) as held:
                made = serving.make_server(
                    "127.0.0.1", PORT, self._app, threaded=True, fd=held.fileno()
                )
                self._serve(made)
                self._known.add(machine.instance)
                self._tell_role(machine.instance)

    def _tell_role(self, instance):
        until = datetime.now(UTC) + timedelta(hours=6)
        word = {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": "ASIAEXAMPLE",
            "SecretAccessKey": "x",
            "Token": "y",
            "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        }
        path = "meta-data/iam/security-credentials"
        for name, value in ((path, "trainer"), (f"{path}/trainer", json.dumps(word))):
            self._cloud.ask("tell", instance=instance, path=name, value=value)

    def _serve(self, server):
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._servers.append((server, thread))
        return server

    def close(self):
        for server, thread in self._servers:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture
def buckets(cloud):
    made = Buckets(cloud)
    yield made
    made.close()


@pytest.mark.extensive
def test_ranks_go_on_from_a_bucket_on_another_machine(cloud, make, monkeypatch, buckets):
    monkeypatch.setattr(quoting, "quote_of", quote_of)
    client = buckets.client()
    client.create_bucket(Bucket="kept")
    pool = make(**OPTIONS, checkpoint="s3://kept/of/me", env=ENV)
    buckets.reach()
    was = machine_of(cloud, pool, 1)
    text = """
import time
import skyward_nb as sky
print('begun')
steps = []
while True:
    steps.append(sky.rank())
    time.sleep(0.05)
"""
    outcome, _ = ran(pool, text, when_begun(lambda: was.notice(seconds=16)))
    assert outcome.reclaimed and not outcome.failed, outcome
    # When the pool began, machines did not reach the bucket yet.
    (coming, tried, kept) = outcome.pool_lost
    assert tried.startswith("names cannot be kept in s3://kept/of/me/default: rank 0: OSError: ")
    assert coming.endswith("the next run gets another machine in its place")
    assert kept.startswith("names are kept in the checkpoint of "), kept
    found = client.list_objects_v2(Bucket="kept")["Contents"]
    key = found[0]["Key"].rpartition("/")[0]
    assert re.fullmatch(rf"of/me/default/{pool.pool_id}-g0001-r\d+-notice", key)
    assert [each["Key"] for each in found] == [
        f"{key}/rank-{rank}.{end}" for rank in range(2) for end in ("json", "names")
    ]
    was.reclaim()
    outcome, values = ran(pool, "len(set(steps)), steps[0], len(steps) > 20", buckets.reach)
    assert [each[:2] for each in values] == [(1, 0), (1, 1)] and all(each[2] for each in values)
    assert not outcome.names_lost or outcome.names_lost == ["_"]
    replaced, resumed = outcome.pool_lost
    assert " in place of node 1 " in replaced
    assert resumed.startswith("goes on from the checkpoint of ")
