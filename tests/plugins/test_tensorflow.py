"""TensorFlow on real ranks: one cluster, strategies in any cell, nothing left waiting."""

from __future__ import annotations

import importlib.util
import json
import time

import psutil
import pytest
from absent import BESIDE_KERAS, without
from kernels import ready
from later import needs
from other_user import UID, as_another_user, needs_another_user
from plugins.test_owner_relay import OUTSIDE, needs_outside, reaches

from skyward_nb.plugins.tensorflow_plugin import PLUGIN, own_share
from skyward_nb.words.info import InstanceInfo, Peer
from skyward_nb.words.spec import PoolSpec

needs_tensorflow = needs("tensorflow")
pytestmark = pytest.mark.timeout(180)

# ── pure ────────────────────────────────────────────────────────────────────────────────


def test_the_cluster_is_every_rank_in_order():
    peers = (
        Peer(0, "10.0.0.1", {"tensorflow": (4001, 4002), "jax": (1, 2)}),
        Peer(1, "fd00::2", {"tensorflow": (4003, 4004)}),
    )
    info = InstanceInfo(rank=2, node=1, world_size=4, workers_per_node=2, peers=peers)
    config = json.loads(PLUGIN.env(info, {})["TF_CONFIG"])
    assert config == {
        "cluster": {
            "worker": ["10.0.0.1:4001", "10.0.0.1:4002", "[fd00::2]:4003", "[fd00::2]:4004"]
        },
        "task": {"type": "worker", "index": 2},
    }


@pytest.mark.parametrize(
    ("frameworks", "env", "keras"),
    [
        (("tensorflow",), {}, "tensorflow"),
        (("keras:tensorflow",), {}, "tensorflow"),
        (("tensorflow", "keras:jax"), {}, "jax"),
        (("tensorflow",), {"KERAS_BACKEND": "torch"}, "torch"),
    ],
)
def test_keras_which_tensorflow_imports_runs_on_what_was_asked_for(frameworks, env, keras):
    spec = PoolSpec(nodes=2, framework=frameworks, env=env)
    options = PLUGIN.options(spec, "")
    modules = PLUGIN.preload(options)
    assert modules.index(f"KERAS_BACKEND={keras}") < modules.index("tensorflow")


def test_it_logs_errors_alone_unless_somebody_says_otherwise(monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    for env, level in (({}, "2"), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, "0")):
        options = PLUGIN.options(PoolSpec(framework=("tensorflow",), env=env), "")
        assert f"TF_CPP_MIN_LOG_LEVEL={level}" in PLUGIN.preload(options)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    options = PLUGIN.options(PoolSpec(framework=("tensorflow",)), "")
    assert "TF_CPP_MIN_LOG_LEVEL=1" in PLUGIN.preload(options)


@pytest.mark.parametrize(
    ("count", "slots", "shares"),
    [
        (0, 2, ([], [])),
        (1, 2, ([0], [0])),
        (2, 2, ([0], [1])),
        (4, 2, ([0, 2], [1, 3])),
        (3, 1, ([0, 1, 2],)),
    ],
)
def test_gpus_are_shared_out(count, slots, shares):
    for rank, share in enumerate(shares):
        info = InstanceInfo(local_rank=rank, workers_per_node=slots)
        assert own_share(list(range(count)), info) == share


# ── two ranks ───────────────────────────────────────────────────────────────────────────

READY = (
    "import json, os, time\nimport numpy as np\nimport tensorflow as tf\nimport skyward_nb as sky\n"
    "r = sky.instance_info().rank\nkept = tf.Variable(7.0)\n"
    "def one(): return tf.distribute.get_replica_context().all_reduce('sum', tf.constant(1.0 + r))\n"
    "strategy = tf.distribute.MultiWorkerMirroredStrategy()"
)
ALL = "tf.distribute.MultiWorkerMirroredStrategy().run(one).numpy().item()"


NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Two ranks, in a notebook whose network has a proxy that answers nobody."""
    path = without(tmp_path_factory.mktemp("absent"), "jax", *BESIDE_KERAS)
    proxies = {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "example.org"}
    with ready(PYTHONPATH=path, **proxies) as running:
        ran = running.run(
            f"%%sky_remote nodes=2 framework=tensorflow grace=20s\n{READY}", timeout=90
        )
        assert ran.status == "ok", ran
        # What TensorFlow says as it starts is nobody's to read.
        assert not ran.stderr
        assert "cuInit" not in ran.picture
        assert "grpc" not in ran.picture
        yield running


@pytest.fixture
def notebook(pool):
    """Two ranks; afterwards they are as before, and can do something together."""
    yield pool
    ran = pool.run(f"%%sky_remote\n{ALL}, kept.numpy().item()")
    assert ran.result == "[0-1] (3.0, 7.0)", ran.traceback


@needs_tensorflow
def test_the_cluster_is_true(notebook):
    ran = notebook.run(
        "%%sky_remote out=got\nos.environ['TF_CONFIG'], os.getpid(), tf.distribute.get_strategy()"
        ".num_replicas_in_sync, strategy.num_replicas_in_sync, strategy.extended._num_workers"
    )
    assert ran.status == "ok", ran.traceback
    got = eval(notebook.run("[list(each) for each in got]").result)
    configs = [json.loads(each[0]) for each in got]
    workers = configs[0]["cluster"]["worker"]
    assert [each["task"]["index"] for each in configs] == [0, 1]
    assert all(each["cluster"]["worker"] == workers for each in configs)
    for (_, pid, *counts), worker in zip(got, workers, strict=True):
        assert int(worker.rpartition(":")[2]) in listening_ports(pid)
        assert counts == [1, 2, 2]


@needs_tensorflow
@needs_outside
def test_nothing_is_reached_beyond_loopback(notebook):
    notebook.run("%%sky_remote out=pids\nos.getpid()")
    ports = {
        port for pid in eval(notebook.run("list(pids)").result) for port in listening_ports(pid)
    }
    assert len(ports) == 2
    for port in ports:
        assert not reaches(port, OUTSIDE)


ATTACK = """
tf.config.experimental_connect_to_host(f"127.0.0.1:{sys.argv[1]}", job_name="victim")
device = next(each.name for each in tf.config.list_logical_devices() if "victim" in each.name)
with tf.device(device):
    print("READ", tf.io.read_file(sys.argv[2]).numpy())
    tf.io.write_file(sys.argv[3], b"!")
    tf.io.read_file(sys.argv[3]).numpy()  # until it is written
os._exit(0)
"""


def listening_ports(pid):
    """Ports at which a rank, or its relay, listens."""
    rank = psutil.Process(pid)
    return {
        each.laddr.port
        for process in (rank, *rank.children())
        for each in process.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    }


@needs_tensorflow
def test_a_reduction_in_and_out_of_a_function(notebook):
    body = "@tf.function\ndef step(): return strategy.run(one)\n"
    ran = notebook.run(
        f"%%sky_remote\n{body}strategy.run(one).numpy().item(), step().numpy().item()"
    )
    assert ran.result == "[0-1] (3.0, 3.0)"


@pytest.mark.extensive
@needs_tensorflow
def test_a_function_that_was_called_in_the_notebook(notebook):
    ran = notebook.run(
        "import tensorflow as tf\n@tf.function\ndef twice(x): return x * 2\nfloat(twice(tf.constant(2.0)))"
    )
    assert ran.result == "4.0", ran.traceback
    ran = notebook.run("%%sky_remote\nfloat(twice(tf.constant(3.0)))")
    assert ran.result == "[0-1] 6.0", ran.traceback


@needs_tensorflow
def test_code_that_autograph_generates_goes_with_the_pool(notebook):
    ran = notebook.run(
        "%%sky_remote\nimport pathlib, sys, tempfile\n"
        "@tf.function\ndef twice(x):\n    while x < 4: x = 2 * x\n    return x\n"
        "made = twice(tf.constant(1)).numpy().item()\n"
        "files = [pathlib.Path(module.__file__) for name, module in sys.modules.items() "
        "if name.startswith('__autograph_generated_file')]\n"
        "pool = pathlib.Path(os.environ['SKYWARD_POOL'])\n"
        "made, bool(files) and all(pool in file.parents and file.exists() for file in files), "
        "pool in pathlib.Path(tempfile.NamedTemporaryFile().name).parents"
    )
    assert ran.result == "[0-1] (4, True, False)", ran.traceback


@pytest.mark.extensive
@needs_tensorflow
def test_a_second_strategy_in_a_later_cell_has_its_own_collectives(notebook):
    ran = notebook.run(
        "%%sky_remote\nsecond = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "with second.scope(): wide = tf.Variable(tf.ones((3, 4)) * (r + 1))\n"
        "both = strategy.run(one), second.run(one)\n"
        "wide.numpy().sum().item(), [each.numpy().item() for each in both]"
    )
    assert ran.result == "[0-1] (12.0, [3.0, 3.0])", ran.traceback


@pytest.mark.extensive
@needs_tensorflow
def test_a_strategy_of_this_rank_alone(notebook):
    ran = notebook.run(
        "%%sky_remote\nlocal = tf.distribute.MirroredStrategy()\n"
        "len(tf.config.list_logical_devices()), local.run(one).numpy().item()"
    )
    assert ran.result == "[0] (1, 1.0)\n[1] (1, 2.0)", ran.traceback


@needs_tensorflow
def test_a_cluster_of_ones_own_is_refused_in_words(notebook):
    ran = notebook.run(
        "%%sky_remote\nresolver = tf.distribute.cluster_resolver.SimpleClusterResolver(\n"
        "    tf.train.ClusterSpec({'worker': ['127.0.0.1:1', '127.0.0.1:2']}), task_type='worker', task_id=r)\n"
        "tf.distribute.MultiWorkerMirroredStrategy(resolver)"
    )
    assert "TensorFlow cannot join a second one" in ran.traceback


@needs_tensorflow
def test_ranks_meet_and_have_no_mesh(notebook):
    ran = notebook.run(
        "%%sky_remote out=times\nfor _ in range(3): sky.barrier()\nif r: time.sleep(0.3)\n"
        "before = time.monotonic()\nsky.barrier()\nbefore, time.monotonic()"
    )
    assert ran.status == "ok", ran.traceback
    assert notebook.run("times[0][1] >= times[1][0]").result == "True"
    ran = notebook.run("%%sky_remote\nsky.mesh()")
    assert "sky.mesh() is for framework=torch and framework=jax" in ran.traceback


@needs_tensorflow
def test_a_loop_of_ones_own_trains_as_one_process_does_on_the_whole_batch(notebook):
    data = (
        "import numpy as np\nxs = np.random.default_rng(0).random((32, 4), dtype='float32')\n"
        "ys, w0 = xs.sum(1, keepdims=True), np.full((4, 1), 0.1, 'float32')"
    )
    assert notebook.run(data).status == "ok"
    ran = notebook.run(
        "%%sky_remote out=weights\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "with strategy.scope(): w = tf.Variable(w0)\n"
        "mine = tf.data.Dataset.from_tensors(sky.shard(xs, ys)).repeat(5)\n"
        "parts = strategy.distribute_datasets_from_function(lambda context: mine)\n"
        "def replica(x, y):\n"
        "    with tf.GradientTape() as tape:\n"
        "        loss = tf.reduce_sum((x @ w - y) ** 2) / 32\n"
        "    grad = tf.distribute.get_replica_context().all_reduce('sum', tape.gradient(loss, w))\n"
        "    w.assign_sub(0.1 * grad)\n"
        "@tf.function\n"
        "def step(batch): strategy.run(replica, batch)\n"
        "for batch in parts: step(batch)\n"
        "w.numpy()"
    )
    assert ran.status == "ok", ran.traceback
    alone = "w = w0.copy()\nfor _ in range(5): w -= 0.1 * 2 / 32 * xs.T @ (xs @ w - ys)"
    assert notebook.run(alone).status == "ok"
    check = "np.array_equal(*weights), np.allclose(weights[0], w, atol=1e-5)"
    assert notebook.run(check).result == "(True, True)"


SHARDS = """\
found = []
for shuffle in (False, True):
    for value in (tf.range(10), tf.Variable(tf.range(10)), tf.constant([f"{n}" for n in range(10)])):
        found.append([int(item) for item in sky.shard(value, shuffle=shuffle).numpy()])
        assert found[-1] == sky.shard(list(range(10)), shuffle=shuffle), found
try:
    sky.shard(tf.data.Dataset.range(3))
except TypeError as error:
    told = str(error)
sorted(found[0]), len(found), "dataset.shard(info.world_size, info.rank)" in told
"""


@needs_tensorflow
def test_tensors_are_shared_out_as_lists_are(notebook):
    ran = notebook.run(f"%%sky_remote\n{SHARDS}")
    assert ran.result == "[0] ([0, 2, 4, 6, 8], 6, True)\n[1] ([1, 3, 5, 7, 9], 6, True)"


KERAS = (
    "x = np.random.default_rng(r).random((64, 4), dtype='float32')\n"
    "def made():\n"
    "    model = keras.Sequential([keras.layers.Dense(1)])\n"
    "    model.compile('sgd', 'mse', jit_compile=False)\n"
    "    return model\n"
)


@needs_tensorflow
@needs("tf_keras")
def test_tf_keras_fits_under_the_strategy_and_its_epochs_are_a_bar(notebook):
    ran = notebook.run(
        f"%%sky_remote out=got\nimport tf_keras as keras\n{KERAS}"
        "with strategy.scope(): model = made()\n"
        "told = model.fit(x, x.sum(1), epochs=3, batch_size=16)\n"
        "model.get_weights()[0], told.history['loss']",
        timeout=90,
    )
    assert ran.status == "ok", ran.traceback
    check = (
        "(a, first), (b, second) = got\n(a == b).all().item(), first == second, first[2] < first[0]"
    )
    assert notebook.run(check).result == "(True, True, True)"
    assert "fit" in ran.picture
    assert "3/3" in ran.picture
    assert "ETA" not in ran.picture, "no bar of text beside"


@needs_tensorflow
def test_keras_3_does_not_fit_under_the_strategy_and_says_what_does(notebook):
    ran = notebook.run(
        f"%%sky_remote\nimport keras\n{KERAS}"
        "with strategy.scope(): model = made()\nmodel.fit(x, x.sum(1))"
    )
    assert ran.error[0] == "RuntimeError"
    for word in ("keras issue 20585", "tf_keras", "strategy.run"):
        assert word in ran.error[1]
    assert "skyward_nb" not in ran.traceback, "no frames of ours"
    assert "model.fit(x, x.sum(1))" in ran.traceback


@needs_tensorflow
def test_keras_3_without_a_strategy_trains_one_model(notebook, tmp_path):
    body = f"import keras\n{KERAS}model = made()\nfirst = model.fit(x, x.sum(1), verbose=0)\n"
    ran = notebook.run(f"%%sky_remote\n{body}again = model.fit(x, x.sum(1), verbose=0)", timeout=90)
    assert ran.status == "ok", ran.traceback
    assert "trains on each rank alone" not in ran.picture
    ran = notebook.run("%%sky_remote\nfloat(sum(abs(each).sum() for each in model.get_weights()))")
    assert ran.result.startswith("[0-1] "), "built from other rows, and with other random numbers"
    # An error of TensorFlow's would have this process import it.
    ran = notebook.run("%%sky_remote\nmodel.fit(x, x.sum(1), epochs='many')")
    assert ran.status == "error"
    assert ran.error[0] == "TypeError"
    assert "keras_on_tensorflow" not in ran.traceback, "no frames of ours"
    # The second time in a group in which no strategy was made, nor have ranks met.
    for number in range(2):
        go = tmp_path / f"go{number}"
        ran = notebook.run(
            "%%sky_remote\nimport os, sys, threading, time\nfrom skyward_nb.system.thread_frames import looking\n"
            "def look(looks=0):\n    while looks < 10:\n        time.sleep(0.03)\n        with looking():\n"
            "            where = sys._current_frames()[threading.main_thread().ident].f_code.co_name\n"
            "        looks = looks + 1 if where == 'quick_execute' else 0\n"
            f"    open({str(go)!r}, 'w').close()\n"
            f"if r:\n    while not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
            "    raise ValueError('alone')\nthreading.Thread(target=look, daemon=True).start()\n"
            "model.fit(x, x.sum(1), verbose=0)"
        )
        assert ran.error[0] == "ValueError"
        assert "names are kept" in ran.traceback


# ── trouble ─────────────────────────────────────────────────────────────────────────────

WAITS = {
    "step()": "tf.function",
    "strategy.run(one)": "strategy.run",
    "sky.barrier()": "sky.barrier",
    "with strategy.scope(): tf.Variable(1.0)": "tf.Variable",
    "next(iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(2))))": "",
}
STEP = (
    "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
    "@tf.function\ndef step(): return strategy.run(one)\n"
)


FIRST = "step()"


def unless_first(waits):
    """Each of these; all but the first are left to `--all`."""
    return [
        pytest.param(each, marks=() if each == FIRST else pytest.mark.extensive) for each in waits
    ]


def fails_while_others_wait(notebook, wait, head, mark):
    """One rank fails once the other, which has traced all by then, stays where it waits: that writes `mark`."""
    code = f"""
import os, sys, threading
from skyward_nb.plugins.collectives import frames_of_thread
from skyward_nb.system.thread_frames import looking
def tell():
    same, before, main = 0, None, threading.main_thread().ident
    while same < 10:
        with looking(): now = [*frames_of_thread(sys._current_frames()[main])]
        same, before = (same + 1 if now == before else 0), now
        time.sleep(0.05)
    open({str(mark)!r}, 'w').close()
{wait}
if r == {head}:
    while not os.path.exists({str(mark)!r}): time.sleep(0.05)
    raise ValueError('before the collective')
threading.Thread(target=tell, daemon=True).start()
{wait}"""
    ran = notebook.run(f"%%sky_remote\n{STEP}{code}", timeout=60)
    assert ran.error[0] == "ValueError"
    assert "before the collective" in ran.traceback
    assert "names are kept" in ran.traceback
    if WAITS[wait]:
        assert f"in {WAITS[wait]}" in ran.traceback or "same collectives" in ran.traceback


@needs_tensorflow
@pytest.mark.parametrize("wait", WAITS)
def test_a_rank_that_fails_while_the_other_waits_is_no_hang(notebook, wait, tmp_path):
    fails_while_others_wait(notebook, wait, 1, tmp_path / "waits")


@needs_tensorflow
@pytest.mark.parametrize("wait", unless_first(WAITS))
def test_the_first_rank_fails_while_the_other_waits(notebook, wait, tmp_path):
    fails_while_others_wait(notebook, wait, 0, tmp_path / "waits")


@needs_tensorflow
@pytest.mark.parametrize("wait", unless_first(WAITS))
def test_an_interrupt_while_one_waits_keeps_names(notebook, wait):
    ran = notebook.stopped(
        f"%%sky_remote\n{STEP}print('here', flush=True)\nif r == 0: time.sleep(60)\n{wait}"
    )
    assert ran.error[0] == "KeyboardInterrupt"


@pytest.mark.extensive
@needs_tensorflow
def test_what_was_made_before_a_cut_goes_on(notebook):
    """Also where one rank has begun collectives that the other never came to."""
    made = (
        f"{STEP}with strategy.scope(): w = tf.Variable(1.0)\n"
        "@tf.function\ndef train():\n"
        "    def replica():\n"
        "        w.assign_add(tf.distribute.get_replica_context().all_reduce('sum', tf.constant(1.0)))\n"
        "    strategy.run(replica)\n"
        "train(); step(); strategy.run(one)\n"
    )
    fails = "if r: raise ValueError('after the first step')\nstrategy.run(one)"
    ran = notebook.run(f"%%sky_remote\n{made}{fails}")
    assert ran.error[0] == "ValueError"
    goes_on = "train()\nw.numpy().item(), step().numpy().item(), strategy.run(one).numpy().item()"
    assert notebook.run(f"%%sky_remote\n{goes_on}").result == "[0-1] (5.0, 3.0, 3.0)"


LONG = (
    "@tf.function\ndef long():\n    x = tf.ones((200, 200))\n"
    "    for _ in tf.range(10**9): x = tf.tanh(x @ x)\n    return x\n"
)


@needs_tensorflow
@pytest.mark.parametrize("strategy", [pytest.param("", marks=pytest.mark.extensive), STEP])
def test_an_interrupt_ends_a_long_function_and_keeps_names(notebook, strategy):
    code = f"%%sky_remote\n{strategy}{LONG}print('here', flush=True)\nlong()"
    ran = notebook.stopped(code, before=lambda: time.sleep(0.5))
    assert ran.error[0] == "KeyboardInterrupt"
    assert "killed" not in ran.traceback


@pytest.mark.extensive
@needs_tensorflow
def test_all_wait_for_different_things(notebook):
    code = f"%%sky_remote\n{STEP}print('here', flush=True)\nsky.barrier() if r else step()"
    ran = notebook.stopped(code, before=lambda: time.sleep(1))
    assert ran.error[0] == "KeyboardInterrupt"
    again = f"%%sky_remote\n{STEP}sky.barrier()\nstep().numpy().item()"
    assert notebook.run(again).result == "[0-1] 3.0"


@needs_tensorflow
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.extensive)])
def test_a_rank_that_dies_while_the_other_waits(notebook, rank):
    ran = notebook.run(
        f"%%sky_remote\n{STEP}if r == {rank}: os.kill(os.getpid(), 9)\nstep()", timeout=60
    )
    assert ran.error[0] == "RankDied", ran.traceback
    assert f"rank {rank}" in ran.error[1]
    assert "lost with the ranks" in ran.traceback
    assert notebook.run(f"%%sky_remote\n{READY}", timeout=60).status == "ok"


@needs_tensorflow
def test_a_restart_is_a_new_cluster(notebook):
    before = notebook.run("%%sky_remote\nos.environ['TF_CONFIG']").result
    assert notebook.run("%sky restart").status == "ok"
    assert notebook.run(f"%%sky_remote\n{READY}", timeout=60).status == "ok"
    assert notebook.run("%%sky_remote\nos.environ['TF_CONFIG']").result != before


# ── with Keras, and alone ───────────────────────────────────────────────────────────────


@pytest.mark.extensive
@needs_tensorflow
@pytest.mark.skipif(
    not importlib.util.find_spec("skyward_nb.plugins.keras_plugin"),
    reason="there is no plugin for Keras",
)
def test_keras_on_tensorflow_and_a_pool_of_one(pool):
    ran = pool.run(
        f"%%sky_remote pool=one nodes=1 framework=keras:tensorflow\n{READY}\nimport keras\n"
        f"{KERAS}with strategy.scope(): model = made()\n"
        "strategy.run(one).numpy().item(), keras.backend.backend()",
        timeout=90,
    )
    assert ran.result == "[0] (1.0, 'tensorflow')", ran.traceback
    assert pool.run("%sky down pool=one").status == "ok"


@needs_tensorflow
@needs_another_user
@pytest.mark.extensive
@pytest.mark.timeout(600)
def test_another_user_of_this_machine_runs_nothing_on_a_rank(tmp_path):
    private, written = tmp_path / "private", tmp_path / "written"
    private.write_text("secret")
    tmp_path.chmod(0o700)
    with ready() as running:
        ran = running.run(
            "%%sky_remote framework=tensorflow out=pid\nimport os; os.getpid()", timeout=90
        )
        assert ran.status == "ok", ran.traceback
        (port,) = listening_ports(int(running.run("pid[0]").result))

        def attacks(seconds, uid):
            words = {
                "imports": "import os\nimport tensorflow as tf",
                "seconds": seconds,
                "uid": uid,
            }
            return as_another_user(ATTACK, port, private, written, **words)

        assert "READ" not in attacks(10, UID)
        assert not written.exists()
        assert "READ b'secret'" in attacks(120, 0), "an attack that works"
        assert written.exists()
