"""torch's store and JAX's coordinator, attacked by another user of this machine and by the pool's own."""

from __future__ import annotations

import importlib.util

import pytest
from kernels import ready
from other_user import UID, as_another_user, needs_another_user

pytestmark = [needs_another_user, pytest.mark.timeout(180)]

STORE = """
store = dist.TCPStore(sys.argv[1], int(sys.argv[2]), is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5))
store.set("skyward-attack", "!")
print("WROTE", store.num_keys() > 1)
"""
COORDINATOR = """
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as to:
    to.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes(3) + b"\\4" + bytes(5))
    print("ANSWERED", len(to.recv(9)) > 0)
"""
"""What each client of gRPC begins with."""


@pytest.mark.parametrize(
    ("framework", "place", "imports", "attack", "answer"),
    [
        pytest.param(
            "torch",
            "os.environ['MASTER_ADDR'] + ':' + os.environ['MASTER_PORT']",
            "from datetime import timedelta\nimport torch.distributed as dist",
            STORE,
            "WROTE True",
            id="torch",
        ),
        pytest.param(
            "jax",
            "os.environ['JAX_COORDINATOR_ADDRESS']",
            "",
            COORDINATOR,
            "ANSWERED True",
            id="jax",
        ),
    ],
)
def test_another_user_changes_no_key_that_ranks_meet_by(framework, place, imports, attack, answer):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    with ready() as running:
        ran = running.run(
            f"%%sky_remote framework={framework} nodes=2 out=places\nimport os\n{place}", timeout=90
        )
        assert ran.status == "ok", ran.traceback
        host, _, port = running.run("print(places[0])").stdout.strip().rpartition(":")

        def attacks(uid, seconds):
            return as_another_user(attack, host, port, imports=imports, seconds=seconds, uid=uid)

        assert answer not in attacks(UID, 15)
        assert running.run("%%sky_remote\nimport skyward_nb as sky\nsky.barrier()").status == "ok"
        assert answer in attacks(0, 60), "an attack that works"
