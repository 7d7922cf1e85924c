"""JAX's ranks when something goes wrong: interrupts, deaths, code that takes the group apart."""

import ast
import time

import psutil
import pytest
from free_ports import free_port
from kernels import Marks, ready
from later import needs
from tiers import few

pytestmark = [
    needs("jax"),
    pytest.mark.timeout(180),
]

READY = """%%sky_remote
import os, sys, time, jax, jax.numpy as jnp, numpy as np, skyward_nb as sky
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P
rank = jax.process_index()
"""
ALL = "multihost_utils.process_allgather(jnp.array([rank])).ravel().tolist()"


@pytest.fixture(scope="module")
def three():
    """Three ranks, in a notebook whose network has a proxy that answers nobody."""
    nowhere = "http://127.0.0.1:9"
    with ready(http_proxy=nowhere, https_proxy=nowhere) as running:
        ran = running.run("%sky up nodes=3 framework=jax grace=20s")
        assert ran.status == "ok", ran.traceback
        assert "proxy" not in ran.picture, "it is not asked, so nobody needs to know"
        yield running


@pytest.fixture
def notebook(three):
    """Afterwards ranks still make one whole, and compute where anybody would expect it."""
    assert three.run(READY).status == "ok"
    yield three
    assert three.run(READY).status == "ok"
    ran = three.run(f"%%sky_remote\n{ALL}, jnp.ones(2).sharding.num_devices, sys.gettrace()")
    assert ran.result == "[0-2] ([0, 1, 2], 1, None)", ran.traceback


def interrupted(notebook, body, after=0.0):
    """Press the button so many seconds after this has said "here"."""
    return notebook.stopped(f"%%sky_remote\n{body}", before=lambda: time.sleep(after))


def rest(pids):
    """Return once these processes have used next to no CPU for a second: what was compiled is."""
    processes = [psutil.Process(pid) for pid in pids]
    before = float("-inf")
    while (now := sum(sum(each.cpu_times()[:2]) for each in processes)) - before > _NEXT_TO_NONE:
        before = now
        time.sleep(1)


_NEXT_TO_NONE = 0.1
"""Seconds of CPU, of all of them; what compiles has more of each second, however many there are beside it."""


COMPUTES = "a computation of JAX"
# What ranks wait in, and its name; a computation both when it is compiled and when it is known.
STUCK = {
    "multihost_utils.process_allgather(jnp.arange(2))": "process_allgather",
    "sky.barrier()": "sky.barrier",
    "f(x)": COMPUTES,
    "f(y)\nf(x)": COMPUTES,
    "trainer.step(x)": COMPUTES,
    "trainer.step(y)\ntrainer.step(x)": COMPUTES,
    "{'f': f}['f'](x).block_until_ready()": COMPUTES,
    "jax.grad(lambda x: f(x))(x)": COMPUTES,
    "float(jnp.sum(x))": COMPUTES,
}


SOME = (
    "multihost_utils.process_allgather(jnp.arange(2))",
    "sky.barrier()",
    "f(x)",
    "trainer.step(y)\ntrainer.step(x)",
)
"""What `make test` plays."""


@pytest.mark.parametrize(
    "wait",
    few(
        2,
        [pytest.param(each, marks=() if each in SOME else pytest.mark.extensive) for each in STUCK],
    ),
)
def test_an_interrupt_of_ranks_that_wait_for_one(notebook, wait):
    ran = notebook.run(
        "%%sky_remote\nclass Trainer: pass\n"
        "f = jax.jit(lambda x: jnp.sum(x), out_shardings=NamedSharding(sky.mesh(), P()))\n"
        "trainer = Trainer(); trainer.step = f\n"
        "x, y = (jax.device_put(jnp.ones(3), NamedSharding(sky.mesh(), P('fsdp'))) for _ in range(2))\n"
        "os.getpid()"
    )
    assert ran.status == "ok", ran.traceback
    pids = [int(line.split()[1]) for line in ran.result.splitlines()]
    first, _, last = wait.rpartition("\n")
    body = f"{first}\nprint('here')\nif rank == 1: time.sleep(100)\n{last}"
    ran = notebook.stopped(f"%%sky_remote\n{body}", before=lambda: rest(pids))
    assert ran.error[0] == "KeyboardInterrupt", ran.traceback
    assert f"which waited in {STUCK[wait]}; the process group was formed again" in ran.picture
    assert notebook.run("%%sky_remote\nrank").result == "[0] 0\n[1] 1\n[2] 2"


def test_code_that_computes_by_itself_is_not_cut(notebook, tmp_path):
    """Nor what sleeps once more: neither waits for a peer."""
    marks = Marks(notebook, tmp_path)
    notebook.run("%%sky_remote\nkept = jax.device_put(jnp.ones(3), jax.local_devices()[0])")
    body = (
        "%%sky_remote\ntry:\n    sky.barrier()\n    here()\n    time.sleep(100)\n"
        "except KeyboardInterrupt: time.sleep(1.5) if rank else None"
    )
    assert notebook.pressed(body, marks.of(0, 1, 2)).status == "ok"
    ran = notebook.run(
        "%%sky_remote\n(kept + jax.device_put(jnp.ones(3), jax.local_devices()[0])).tolist()"
    )
    assert ran.result == "[0-2] [2.0, 2.0, 2.0]", "the group is that one still"


@pytest.mark.parametrize(
    "after", [0, 0.27, *(pytest.param(each, marks=pytest.mark.extensive) for each in (0.13, 0.41))]
)
def test_an_interrupt_within_a_loop_of_collectives(notebook, after):
    """It comes upon code of JAX, nearly always, and leaves no mesh set there."""
    ran = interrupted(
        notebook,
        "x = multihost_utils.process_allgather(jnp.arange(2)).sum()\nprint('here')\n"
        "while True: x = x + multihost_utils.process_allgather(jnp.arange(2)).sum()",
        after,
    )
    assert ran.error[0] == "KeyboardInterrupt", ran.traceback


RESERVED = """
import socket
def reserved():
    '''How many sockets are bound, and neither listen nor are connected.'''
    found = 0
    for name in os.listdir('/proc/self/fd'):
        path = f'/proc/self/fd/{name}'
        if not os.path.islink(path) or not os.readlink(path).startswith('socket:'): continue
        one = socket.socket(fileno=os.dup(int(name)))
        with one:
            if one.family == socket.AF_INET and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                try: one.getpeername()
                except OSError: found += one.getsockname()[1] > 0
    return found
"""


def test_ranks_that_have_called_more_than_others_are_out_of_step(notebook):
    """What one has called ahead, and is computed after the cell, would meet what the others call in the next one."""
    spread = (
        "alike, parts = NamedSharding(sky.mesh(), P()), NamedSharding(sky.mesh(), P(('fsdp', 'tp')))\n"
        "x = jax.device_put(jnp.ones((192, 64)), parts)\n"
    )
    made = notebook.run(
        f"%%sky_remote\n{spread}{RESERVED}"
        "step = jax.jit(lambda w, x: w + x.T @ (x - x @ w) / 1e6, out_shardings=alike)\n"
        "w = step(jax.device_put(jnp.zeros((64, 64)), alike), x).block_until_ready()"
    )
    assert made.status == "ok", made.traceback
    body = (
        "for _ in range(2 + 3 * rank): w = step(w, x)\nif rank == 2: print('here')\ntime.sleep(100)"
    )
    ran = interrupted(notebook, body, 0.1)
    assert ran.error[0] == "KeyboardInterrupt", ran.traceback
    assert "ranks had not called the same collectives" in ran.picture
    ran = notebook.run(
        f"%%sky_remote\n{spread}"
        "float(jax.jit(lambda x: x.T @ x, out_shardings=alike)(x).addressable_data(0)[0, 0])"
    )
    assert ran.result == "[0-2] 192.0", ran.traceback
    ran = notebook.run("%%sky_remote\nreserved()")
    assert ran.result == "[0]   1\n[1-2] 0", (
        "the head's for this generation, and none of one before"
    )


def test_a_mesh_that_code_has_set_stays_set(notebook, tmp_path):
    notebook.run("%%sky_remote\nbefore = jax.set_mesh(sky.mesh())")
    # Ranks that are not all in the same line are out of step.
    begun = [tmp_path / str(rank) for rank in range(3)]
    loop = f"while True: jnp.ones(2).sum(); open(f'{tmp_path}/{{rank}}', 'a').close()"
    ran = notebook.pressed(f"%%sky_remote\n{loop}", lambda: all(each.exists() for each in begun))
    assert ran.error[0] == "KeyboardInterrupt", ran.traceback
    ran = notebook.run("%%sky_remote\ndict(jax.sharding.get_mesh().shape)")
    assert ran.result == "[0-2] {'fsdp': 3, 'tp': 1}", ran.traceback
    notebook.run("%%sky_remote\nbefore.__exit__(None, None, None)")


@pytest.mark.parametrize("victim", few(1, [2, 0]))
def test_a_rank_that_dies(notebook, victim):
    """Those that lose the coordinator are ended by JAX itself: all begin anew, whoever it was."""
    ran = notebook.run(
        f"%%sky_remote\nif rank == {victim}:\n    time.sleep(0.3)\n    os.kill(os.getpid(), 9)\n{ALL}"
    )
    assert ran.error[0] == "RankDied", ran.traceback
    assert f"rank {victim} killed by SIGKILL" in ran.traceback
    ended = "ranks 1-2 ended by JAX, which lost its coordinator, rank 0"
    assert (ended in ran.picture) == (ended in ran.traceback)
    # With the coordinator gone some may also end in another way, before JAX has found out.
    assert victim == 0 or ended not in ran.traceback
    for noise in ("absl::", "coordination_service", "SIGABRT", "last words", "were in at"):
        assert noise not in ran.picture + ran.traceback
    assert "all ranks were started anew" in ran.picture


@pytest.mark.extensive
def test_what_is_of_the_old_devices_says_so(notebook):
    notebook.run(
        "%%sky_remote\nmine, there = jnp.arange(3.0), jax.device_put(jnp.ones(3), jax.local_devices()[0])\n"
        "spread = jax.device_put(jnp.arange(3.0), NamedSharding(sky.mesh(), P('fsdp')))"
    )
    ran = interrupted(notebook, f"if rank == 1: time.sleep(100)\nprint('here')\n{ALL}", 0.8)
    assert "arrays that are spread over ranks, must be made again" in ran.picture
    ran = notebook.run("%%sky_remote\nfloat((mine + jnp.ones(3)).sum()), there.tolist()")
    assert ran.result == "[0-2] (6.0, [1.0, 1.0, 1.0])"
    assert notebook.run("%%sky_remote\nspread.addressable_data(0).tolist()").result == (
        "[0] [0.0]\n[1] [1.0]\n[2] [2.0]"
    )
    for old in (
        "there + jax.device_put(jnp.ones(3), jax.local_devices()[0])",
        "float(spread.sum())",
        # One comes late and is stopped, so that the group is formed again in this cell, too.
        "if rank == 1: time.sleep(100)\nthere + jax.device_put(jnp.ones(3), jax.local_devices()[0])",
    ):
        ran = notebook.run(f"%%sky_remote\n{old}", timeout=60)
        assert ran.status == "error"
        assert "this may belong to a process group that was cut before" in ran.picture, ran.picture


def test_what_code_takes_apart_the_next_generation_has(notebook):
    ran = notebook.run(
        "%%sky_remote\njax.distributed.shutdown()\nsaid = ''\n"
        "try: jax.distributed.initialize()\nexcept RuntimeError as error: said = str(error)\nsaid[:60]"
    )
    assert "must be called before any JAX" in ran.result, "as JAX has it"
    assert notebook.run("%sky restart").status == "ok"
    assert notebook.run(READY).status == "ok"
    ran = notebook.run("%%sky_remote\njax.distributed.initialize()\njax.device_count()")
    assert ran.result == "[0-2] 3"


@pytest.mark.parametrize("where", few(1, ["old", "new"]))
def test_code_that_joins_anew_listens_on_loopback(notebook, where):
    # Whoever comes too early would find the old coordinator, which is about to end.
    wait, address = "if rank: time.sleep(3)", "os.environ['JAX_COORDINATOR_ADDRESS']"
    if where == "new":
        wait, address = "", repr(f"127.0.0.1:{free_port()}")
    ran = notebook.run(
        "%%sky_remote out=pids\nimport jax.extend.backend\n"
        "jax.distributed.shutdown()\njax.extend.backend.clear_backends()\n"
        f"{wait}\njax.distributed.initialize({address}, 3, rank)\n"
        f"assert {ALL} == [0, 1, 2]\nos.getpid()"
    )
    assert ran.status == "ok", ran.traceback
    for pid in ast.literal_eval(notebook.run("list(pids)").result):
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), connection


def test_nothing_is_said_that_is_no_news(notebook):
    ran = notebook.run(
        "%%sky_remote\n!echo there\n"
        "twos = jax.make_mesh((2,), ('x',), devices=jax.devices()[:2], axis_types=(jax.sharding.AxisType.Auto,))\n"
        "if rank < 2:\n"
        "    spread = jax.device_put(jnp.arange(2.0), NamedSharding(twos, P('x')))\n"
        "    print(float(spread.sum()))"
    )
    assert ran.status == "ok", ran.traceback
    assert "[0-1] 1.0" in ran.picture
    assert "there" in ran.picture
    assert "Gloo" not in ran.picture, "who found whom"
    assert "os.fork" not in ran.picture, "a command is another program at once"


def test_a_new_generation_has_a_new_coordinator(notebook):
    port = "%%sky_remote\nos.environ['JAX_COORDINATOR_ADDRESS']"
    before = notebook.run(port).result
    assert notebook.run("%sky restart").status == "ok"
    notebook.run(READY)
    assert notebook.run(port).result not in (None, before)


@pytest.mark.extensive
def test_two_pools_at_a_time(notebook):
    line = (
        "pool=second nodes=2 framework=jax env=XLA_FLAGS=--xla_force_host_platform_device_count=2"
    )
    assert notebook.run(f"%sky up {line}").status == "ok"
    ran = notebook.run(
        "%%sky_remote pool=second\nimport jax, jax.numpy as jnp\nfrom jax.experimental import multihost_utils as m\n"
        "jax.device_count(), m.process_allgather(jnp.array([jax.process_index()])).ravel().tolist()"
    )
    assert ran.result == "[0-1] (4, [0, 1])", ran.traceback
    assert notebook.run(f"%%sky_remote pool=default\n{ALL}").result == "[0-2] [0, 1, 2]"
    assert notebook.run("%sky down pool=second").status == "ok"
