"""JAX on the ranks of a pool: one set of devices, collectives, arrays that are spread out."""

import ast
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from kernels import ready
from later import needs
from other_user import CONNECTS, as_another_user, needs_another_user

import skyward_nb as sky
from skyward_nb.compat.known_frames import A_COMPUTATION_OF_JAX
from skyward_nb.plugins import jax_plugin
from skyward_nb.plugins.jax_plugin import as_jax_reads
from skyward_nb.words.errors import StartError

pytestmark = needs("jax")

LINE = "nodes=2 framework=jax mesh=fsdp:2,tp:2 env=JAX_NUM_CPU_DEVICES=2,JAX_ENABLE_X64=T grace=20s"


@pytest.fixture(scope="module")
def notebook():
    with ready(
        f"%sky up {LINE}",
        "%%sky_remote\nimport os, time, jax, jax.numpy as jnp, numpy as np\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "from jax.experimental import multihost_utils\nimport skyward_nb as sky\n"
        "rank = jax.process_index()",
    ) as running:
        yield running


def values(ran):
    """The value of each rank, by what the results' text says of them."""
    assert ran.status == "ok", ran.traceback
    return ran.result


def test_variables_are_what_people_know(notebook):
    notebook.run(
        "%%sky_remote out=seen\n"
        "{k: v for k, v in os.environ.items() if k.startswith('JAX_')}, sky.instance_info().peers[0].ports"
    )
    first, second = (ast.literal_eval(notebook.run(f"seen[{r}][0]").result) for r in (0, 1))
    ports = ast.literal_eval(notebook.run("seen[0][1]").result)
    assert first["JAX_COORDINATOR_ADDRESS"] == f"127.0.0.1:{ports['jax'][0]}"
    assert (first["JAX_NUM_PROCESSES"], second["JAX_PROCESS_ID"]) == ("2", "1")
    assert first["JAX_LOCAL_DEVICE_COUNT"] == "2"


def test_all_devices_are_one_set(notebook):
    ran = notebook.run(
        "%%sky_remote\njax.device_count(), jax.local_device_count(), jax.process_count(), jax.default_backend()"
    )
    assert values(ran) == "[0-1] (4, 2, 2, 'cpu')"


def test_functions_with_derivatives_of_their_own(notebook):
    notebook.run(
        "import jax, jax.numpy as jnp\n@jax.checkpoint\ndef layer(x): return jnp.sin(x)\n"
        "@jax.custom_vjp\ndef clipped(x): return x\n"
        "def forth(x): return clipped(x), None\ndef back(_, g): return (jnp.clip(g, -1, 1),)\n"
        "clipped.defvjp(forth, back)"
    )
    ran = notebook.run("%%sky_remote\nfloat(jax.grad(lambda x: 9 * clipped(layer(x)))(0.0))")
    assert values(ran) == "[0-1] 1.0"


def test_types_of_numbers_are_those_that_the_notebook_sets(notebook):
    width = "%%sky_remote\nstr(jnp.arange(2.0).dtype)"
    assert values(notebook.run(width)) == "[0-1] 'float64'", (
        "the pool's env= stands while nothing is set"
    )
    for is_wide, expected in ((True, "float64"), (False, "float32"), (True, "float64")):
        notebook.run(f"import jax\njax.config.update('jax_enable_x64', {is_wide})")
        assert values(notebook.run(width)) == f"[0-1] '{expected}'"


def test_collectives_and_a_mesh(notebook):
    ran = notebook.run(
        "%%sky_remote\nmesh = sky.mesh()\n"
        "x = jax.device_put(jnp.arange(16.0).reshape(4, 4), NamedSharding(mesh, P('fsdp', 'tp')))\n"
        "total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))(x)\n"
        "import functools\n"
        "psum = jax.shard_map(lambda a: jax.lax.psum(a, ('fsdp', 'tp')), mesh=mesh, in_specs=P('fsdp', 'tp'), out_specs=P())\n"
        "sky.barrier()\n"
        "(dict(mesh.shape), float(total), float(psum(x)[0, 0]), multihost_utils.process_allgather(jnp.array([rank])).ravel().tolist())"
    )
    expected = "({'fsdp': 2, 'tp': 2}, 120.0, 20.0, [0, 1])"
    assert values(ran) == f"[0-1] {expected}"


def test_an_array_that_is_spread_out_comes_home_whole(notebook):
    notebook.run(
        "%%sky_remote out=whole pull=named\n"
        "named = {'w': jax.device_put(jnp.arange(8.0), NamedSharding(sky.mesh(), P('fsdp')))}\n"
        "jax.device_put(jnp.arange(16.0).reshape(4, 4), NamedSharding(sky.mesh(), P('fsdp', 'tp')))"
    )
    assert notebook.run("whole[0].tolist() == whole[1].tolist()").result == "True"
    assert (
        notebook.run("float(whole[1].sum()), named[0]['w'].tolist()[-1]").result == "(120.0, 7.0)"
    )


def test_an_array_that_is_spread_out_is_not_shared_out(notebook):
    ran = notebook.run(
        "%%sky_remote\n"
        "sky.shard(jax.device_put(jnp.arange(8.0), NamedSharding(sky.mesh(), P('fsdp'))))"
    )
    assert ran.error[0] == "ValueError"
    assert "process_allgather" in ran.traceback


def test_code_that_joins_by_itself(notebook):
    notebook.run("%sky restart")
    ran = notebook.run(
        "%%sky_remote\nimport jax, jax.numpy as jnp, os, time\nimport skyward_nb as sky\n"
        "from jax.experimental import multihost_utils\nfrom jax.sharding import NamedSharding, PartitionSpec as P\n"
        "rank = jax.process_index()\n"
        "jax.distributed.initialize(os.environ['JAX_COORDINATOR_ADDRESS'], int(os.environ['JAX_NUM_PROCESSES']), int(os.environ['JAX_PROCESS_ID']))\n"
        "said = []\n"
        "for more in ({}, {'num_processes': 9}):\n"
        "    try: jax.distributed.initialize(**more)\n"
        "    except Exception as error: said.append((type(error).__name__, str(error)[:60]))\n"
        "said, jax.device_count()"
    )
    assert values(ran).endswith(", 4)")
    assert "'RuntimeError'" in ran.result, "JAX's own, for a second time"
    assert "num_processes=9" in ran.result


@pytest.mark.parametrize(
    "wait",
    [
        "multihost_utils.process_allgather(jnp.arange(2))",
        "f = jax.jit(jnp.sum, out_shardings=NamedSharding(sky.mesh(), P()))\n"
        "f(jax.make_array_from_process_local_data(NamedSharding(sky.mesh(), P('fsdp')), jnp.ones(1))).block_until_ready()",
        pytest.param(
            "f = jax.jit(jnp.sum, out_shardings=NamedSharding(sky.mesh(), P()))\n"
            "f(jax.make_array_from_process_local_data(NamedSharding(sky.mesh(), P('fsdp')), jnp.ones(1)))",
            marks=pytest.mark.extensive,
        ),
        pytest.param("sky.barrier()", marks=pytest.mark.extensive),
    ],
)
def test_a_failed_rank_frees_those_that_wait_for_it_and_names_are_kept(notebook, wait, tmp_path):
    notebook.run("%%sky_remote\nkept = jnp.arange(3.0)")
    word = str(tmp_path / "here")
    # The other one stays where it waits by then.
    fails = f"""
import sys, threading
from skyward_nb.plugins.collectives import frames_of_thread
from skyward_nb.system.thread_frames import looking
def tell(main=threading.main_thread().ident):
    same, before = 0, None
    while same < 10:
        with looking(): now = [*frames_of_thread(sys._current_frames()[main])]
        same, before = (same + 1 if now == before else 0), now
        time.sleep(0.05)
    open({word!r}, 'w').close()
if rank == 1:
    while not os.path.exists({word!r}): time.sleep(0.01)
    raise ValueError('one is out')
threading.Thread(target=tell, daemon=True).start()
"""
    ran = notebook.run(f"%%sky_remote\n{fails}\n{wait}", timeout=60)
    assert ran.error[0] == "ValueError", ran.traceback
    assert "spread over ranks, must be made again" in ran.picture, ran.picture
    ran = notebook.run(
        "%%sky_remote\n(kept + jnp.ones(3)).tolist(), multihost_utils.process_allgather(jnp.array([rank])).ravel().tolist()"
    )
    assert values(ran) == "[0-1] ([1.0, 2.0, 3.0], [0, 1])"


def test_an_error_of_all_ranks_leaves_what_is_spread_over_them(notebook):
    line = "%%sky_remote\nspread = jax.device_put(jnp.arange(4.0), NamedSharding(sky.mesh(), P('fsdp')))\n"
    assert notebook.run(line).status == "ok"
    assert notebook.run("%%sky_remote on_error=wait\nundefined").error[0] == "NameError"
    ran = notebook.run("%%sky_remote\nfloat(jnp.sum(spread))")
    assert values(ran) == "[0-1] 6.0"


def test_an_interrupt_in_a_collective_leaves_no_mesh_behind(notebook):
    """`process_allgather` sets one while it gathers; code may set one for all that follows."""
    ended = notebook.stopped(
        "%%sky_remote\njax.set_mesh(sky.mesh())\nprint('here')\n"
        "if rank: multihost_utils.process_allgather(1.0)\nelse: time.sleep(100)"
    )
    assert ended.error[0] == "KeyboardInterrupt", ended.traceback
    ran = notebook.run(
        "%%sky_remote\none = jnp.ones(1)\n"
        "one.is_fully_addressable, multihost_utils.process_allgather(one).shape"
    )
    assert values(ran) == "[0-1] (True, (2, 1))"


def test_nothing_listens_beyond_loopback(notebook):
    import psutil

    notebook.run("%%sky_remote out=pids\nos.getpid()")
    listening = 0
    for pid in ast.literal_eval(notebook.run("list(pids)").result):
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                listening += 1
                assert connection.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), connection
    assert listening >= 2, "gloo on each rank"


@needs_another_user
def test_another_user_of_this_machine_does_not_reach_the_coordinator(notebook):
    notebook.run(
        "%%sky_remote out=told\n"
        "[os.environ['JAX_COORDINATOR_ADDRESS'], os.environ['SKYWARD_POOL'], sky.instance_info().generation]"
    )
    address, folder, generation = ast.literal_eval(notebook.run("told[0]").result)
    assert as_another_user(CONNECTS, *address.split(":"), "PRI").strip() == "closed", (
        "nobody listens"
    )
    path = Path(folder, f"jax-{generation}")
    comes = (
        "import socket, sys\nline = socket.socket(socket.AF_UNIX)\n"
        "try: line.connect(sys.argv[1])\nexcept OSError as error: print(type(error).__name__)\n"
        "else: print('reached')"
    )
    assert as_another_user(comes, path).strip() == "PermissionError"
    assert as_another_user(comes, path, uid=os.getuid()).strip() == "reached"
    assert values(notebook.run("%%sky_remote\nsky.barrier()\n1")) == "[0-1] 1"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("pool=x framework=jax nodes=2 mesh=fsdp:3", "fsdp:3: 3, and the pool has 2 devices"),
        ("pool=x framework=jax env=JAX_NUM_CPU_DEVICES=two", "give a whole number"),
        ("pool=x framework=jax accelerator=A100:3 ranks_per_node=2 simulate", "divided evenly"),
        ("pool=x framework=jax env=JAX_PROCESS_ID=0", "each rank has its own"),
        ("pool=x framework=tf env=TF_CONFIG={}", "each rank has its own"),
        ("pool=x framework=jax nodes=2 backend=gloo", "needs framework=torch"),
        ("pool=x framework=jax env=JAX_PLATFORMS=cuda", "ask for accelerator="),
    ],
)
def test_refused_before_anything_starts(notebook, line, message):
    ran = notebook.run(f"%sky up {line}")
    assert message in ran.stderr, ran.error


def test_ranks_of_which_one_has_called_ahead_are_out_of_step(monkeypatch):
    """After an error of their own what was called has a second to be computed, as arrays would be lost."""
    computed_at = 0

    def of(rank, ended):
        monkeypatch.setattr(jax_plugin, "instance_info", lambda: SimpleNamespace(rank=rank))
        monkeypatch.setattr(jax_plugin, "_has_computed", lambda looks: looks > computed_at)
        return jax_plugin.PLUGIN.steps(ended)

    stopped, failed = "KeyboardInterrupt here ", "NameError here "
    assert of(0, stopped) == of(1, stopped)
    computed_at = 10
    assert of(0, stopped) != of(1, stopped)
    assert of(0, failed) == of(1, failed)
    computed_at = 100
    assert of(0, failed) != of(1, failed)
    assert of(0, "") == of(1, ""), "ranks that end well may have met as they liked"
    computed_at = 0
    called = f"{stopped}{A_COMPUTATION_OF_JAX}"
    assert of(0, called) != of(1, called)


def test_what_jax_said_before_it_ended_the_process():
    with pytest.raises(
        StartError, match=r"exited with code 1 before(.|\n)*Unknown flag(.|\n)*no_such=1"
    ):
        sky.Compute(
            plugins=[sky.plugins.jax()], env={"XLA_FLAGS": "--no_such=1"}, quiet=True
        ).start()


def test_a_variable_that_jax_would_not_understand_is_refused(notebook):
    ran = notebook.run("%sky up pool=x framework=jax env=JAX_ENABLE_X64=maybe")
    assert "JAX_ENABLE_X64=maybe: JAX takes 1, true, yes" in ran.traceback, ran
    ran = notebook.run("%%sky_remote\nstr(jnp.ones(1).dtype)")
    assert ran.result == "[0-1] 'float64'", "the pool's own says T"


@pytest.mark.parametrize(
    ("text", "value", "meant"),
    [("Yes", False, True), ("off", True, False), ("7", 1, 7), ("x", None, "x"), ("y", "n", "y")],
)
def test_variables_are_read_as_jax_reads_them(text, value, meant):
    assert as_jax_reads("JAX_X", text, value) == meant


@pytest.mark.parametrize(("text", "value"), [("", True), ("2", False), ("many", 1)])
def test_variables_that_jax_cannot_read(text, value):
    with pytest.raises(ValueError, match=f"JAX_X={text}: JAX takes"):
        as_jax_reads("JAX_X", text, value)
