"""Values of array packages, and of the corners of the standard library: there and back."""

import asyncio
import collections
import concurrent.futures
import contextvars
import functools
import gc
import io
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import types
import weakref

import pytest
from later import needs

from skyward_nb.pickling import payload, reducers
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.errors import PayloadError


@pytest.fixture
def store(tmp_path):
    return BlobStore(tmp_path)


@pytest.fixture
def travel(store):
    def there_and_back(value, *, out_of_band=None):
        bundle = payload.pack("x", value)
        if out_of_band is not None:
            assert (bundle.in_band < bundle.size / 2) == out_of_band
        return payload.unpack(bundle.stow(store), store)

    return there_and_back


# ── the standard library ────────────────────────────────────────────────────────────────


class Cached:
    @functools.cached_property
    def once(self):
        return [1]


@functools.singledispatch
def dispatching(value):
    return "any"


def test_cached_functions_and_properties(travel, home_namespace):
    exec(
        "import functools\n@functools.lru_cache(maxsize=7)\ndef fib(n): return n if n < 2 else "
        "fib(n - 1) + fib(n - 2)\nclass C:\n    @functools.cached_property\n    def p(self): return 5\n",
        home_namespace,
    )
    fib = travel(home_namespace["fib"])
    assert fib(50) == 12586269025
    assert fib.cache_parameters()["maxsize"] == 7
    assert travel(home_namespace["C"]()).p == 5
    assert travel(functools.lru_cache(len)).cache_info().currsize == 0


def test_weak_dictionaries_keep_what_something_else_keeps(travel):
    key = threading.Barrier  # a class: something that lives on
    back = travel({"weak": weakref.WeakKeyDictionary({key: 1})})
    assert dict(back["weak"]) == {key: 1}


def test_what_only_dill_can(travel, home_namespace):
    exec("class A: pass\nclass B(A):\n    def up(self): return super()\nb = B()", home_namespace)
    assert type(travel([home_namespace["b"].up()])[0]) is super


def test_streams_of_the_process_are_those_of_the_other(travel):
    assert travel([sys.stdout]) == [sys.stdout]
    assert travel(io.BytesIO(b"abc")).read() == b"abc"


def generator():
    yield 1


async def coroutine(): ...


LIVE = {
    "threading.Lock": (threading.Lock, "a lock guards"),
    "threading.RLock": (threading.RLock, "a lock guards"),
    "Thread": (lambda: threading.Thread(target=print), "a thread belongs"),
    "local": (threading.local, "each thread's own"),
    "socket": (lambda: socket.socketpair()[0], "a socket belongs"),
    "file": (lambda: open(__file__), "send its path"),
    "generator": (generator, "send list"),
    "coroutine": (coroutine, "await it"),
    "frame": (sys._getframe, "running code"),
    "weakref": (lambda: weakref.ref(LIVE_CLASS), "would be dead"),
    "process": (lambda: subprocess.Popen(["true"]), "process of this machine"),
    "loop": (asyncio.new_event_loop, "event loop"),
    "executor": (lambda: concurrent.futures.ThreadPoolExecutor(1), "threads of its process"),
    "context variable": (lambda: contextvars.ContextVar("it"), "send .get\\(\\)"),
    "database": (lambda: sqlite3.connect(":memory:"), "send the path of the database"),
    "cursor": (lambda: sqlite3.connect(":memory:").cursor(), "send the rows"),
    "future": (concurrent.futures.Future, "send what it gives"),
}
LIVE_CLASS = type("LiveClass", (), {})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", LIVE)
def test_what_lives_in_its_process_is_refused_with_its_path(kind):
    make, why = LIVE[kind]
    value = make()
    try:
        with pytest.raises(PayloadError, match=why) as caught:
            payload.pack("job", {"parts": [1, types.SimpleNamespace(it=value)]})
        assert caught.value.path == "job['parts'][1].it"
    finally:
        getattr(value, "close", lambda: None)()
        if isinstance(value, subprocess.Popen):
            value.wait()


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda lock: collections.deque([0, lock]), "x[1]"),
        (lambda lock: functools.partial(print, lock), "x.args[0]"),
        (lambda lock: type("Local", (), {"lock": lock}), "x.lock"),
        (lambda lock: lambda a=lock: a, "x.__defaults__[0]"),
        (lambda lock: {1: {lock}}, None),
    ],
)
def test_the_path_leads_through_containers_classes_and_functions(make, path):
    with pytest.raises(PayloadError) as caught:
        payload.pack("x", make(threading.Lock()))
    assert path is None or caught.value.path == path


def test_a_name_that_is_itself_what_cannot_travel_is_not_left_out_of_itself():
    with open(__file__) as file, pytest.raises(PayloadError) as caught:
        payload.pack("file", file)
    said = caught.value.message.splitlines()
    assert said[1] == "Make file on the ranks instead, in the cell that reads it."


def test_what_is_nested_too_deeply_is_told():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PayloadError, match="nested too deeply"):
        payload.pack("deep", deep)


def test_a_value_that_changes_size_while_it_is_packed_is_told():
    class Growing:
        def __init__(self, into):
            self.into = into

        def __reduce__(self):
            self.into[object()] = 1
            return int, ()

    grows = {}
    grows["a"] = Growing(grows)
    grows["b"] = 2
    with pytest.raises(PayloadError, match="changes while it is packed"):
        payload.pack("grows", grows)


# ── arrays ──────────────────────────────────────────────────────────────────────────────

try:
    import numpy as np
except ImportError:
    np = None
needs_numpy = pytest.mark.skipif(np is None, reason="NumPy is not installed")

ARRAYS = {
    "plain": lambda: np.arange(10_000.0),
    "strided": lambda: np.arange(20_000.0)[::2],
    "backwards": lambda: np.arange(10_000.0)[::-1],
    "fortran": lambda: np.asfortranarray(np.arange(10_000.0).reshape(100, 100)),
    "inner axes": lambda: np.arange(24_000.0).reshape(10, 40, 60).transpose(1, 0, 2),
    "dates": lambda: np.arange(10_000).astype("M8[s]"),
    "spans": lambda: np.arange(10_000).astype("m8[ms]"),
    "records": lambda: np.zeros(5000, [("a", "i4"), ("b", "f8")]),
    "big-endian": lambda: np.arange(10_000, dtype=">i4"),
    "text": lambda: np.array(["abc", "de"] * 5000),
    "booleans": lambda: np.arange(10_000) % 2 == 0,
    "complex": lambda: np.arange(5000) * 1j,
    "fortran dates": lambda: np.asfortranarray(np.arange(10_000).astype("M8[s]").reshape(100, -1)),
}


@needs_numpy
@pytest.mark.parametrize("kind", ARRAYS)
def test_numpy_arrays_stay_out_of_the_pickle(kind, travel):
    array = ARRAYS[kind]()
    back = travel(array, out_of_band=True)
    assert back.dtype == array.dtype and back.shape == array.shape
    assert back.flags.writeable
    np.testing.assert_array_equal(back, array)


@needs_numpy
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array(3.5),
        lambda: np.zeros((0, 3)),
        lambda: np.array([1, "a", None], object),
        lambda: np.ma.masked_array([1, 2], [True, False]),
        lambda: np.float32(2),
    ],
)
def test_odd_arrays(make, travel):
    array = make()
    back = travel(array)
    assert type(back) is type(array)
    assert str(back) == str(array)


def test_torch_tensors_share_their_storages(travel):
    torch = pytest.importorskip("torch")
    base = torch.arange(10_000.0)
    back = travel({"base": base, "view": base[10:20], "t": base.view(100, 100).T}, out_of_band=True)
    back["base"][10] = -1
    assert back["view"][0] == -1
    assert back["t"].stride() == (1, 100)
    for odd in (torch.zeros(0), torch.zeros(2, 0, 3), torch.ones(3, dtype=torch.bfloat16),
                torch.eye(3).to_sparse(), torch.ones(3, requires_grad=True), torch.ones(2).conj(),
                torch.tensor(1 + 2j).conj(), torch.nn.Parameter(torch.ones(2))):  # fmt: skip
        again = travel(odd)
        assert type(again) is type(odd)
        assert again.requires_grad == odd.requires_grad
        assert torch.equal(again.to_dense(), odd.to_dense())


def test_tensors_travel_where_torch_has_no_numpy(travel, monkeypatch):
    torch = pytest.importorskip("torch")

    def refused(_):
        raise RuntimeError("Numpy is not available")

    monkeypatch.setattr(torch.Tensor, "numpy", refused)
    base = torch.arange(10_000.0)
    back = travel({"base": base, "view": base[10:20]}, out_of_band=True)
    assert torch.equal(back["base"], base)
    back["base"][10] = -1
    assert back["view"][0] == -1
    assert base[10] == 10
    part = torch.arange(1_000_000.0)[5:9]  # a copy of it is all that holds its memory
    assert travel(part).tolist() == [5, 6, 7, 8]
    for odd in (torch.zeros(0), torch.ones(3, dtype=torch.bfloat16), torch.nn.Linear(2, 2).weight):
        assert torch.equal(travel(odd), odd)


def test_a_torch_module_keeps_its_ties(travel):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    back = travel(model)
    assert back[1].weight is back[0].weight
    generator = torch.Generator().manual_seed(5)
    assert torch.equal(
        torch.rand(3, generator=travel(generator)), torch.rand(3, generator=generator)
    )


@pytest.mark.parametrize("way", ["weight_norm", "spectral_norm", "orthogonal"])
def test_modules_with_parametrizations(way, travel):
    torch = pytest.importorskip("torch")
    add = getattr(torch.nn.utils.parametrizations, way)
    torch.manual_seed(0)
    model = torch.nn.Sequential(add(torch.nn.Linear(3, 3)), torch.nn.Linear(3, 1))
    model[0].note = "mine"
    model.eval()  # a spectral norm changes with each use in training
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.rand(4, 3)
    for _ in range(2):  # and from there once more
        there, optimizer_there = travel((model, optimizer))
        assert torch.equal(there(x), model(x))
        assert type(there[0]).__name__ == "ParametrizedLinear"
        assert there[0].note == "mine"
        assert there.state_dict().keys() == model.state_dict().keys()
        before = there[0].weight.detach().clone()
        there(x).sum().backward()
        optimizer_there.step()
        assert not torch.equal(there[0].weight, before)
        model, optimizer = there, optimizer_there


def test_parametrized_modules_of_classes_with_a_way_of_their_own(travel):
    torch = pytest.importorskip("torch")

    class Reads(torch.nn.Linear):
        def __setstate__(self, state):
            super().__setstate__(state)
            self.seen = tuple(self.weight.shape)

    class Locked(torch.nn.Linear):
        def __reduce__(self):
            return torch.nn.Linear, (self.in_features, self.out_features)

    add = torch.nn.utils.parametrizations.weight_norm
    assert travel(add(Reads(3, 2))).seen == (2, 3)
    locked = add(Locked(3, 2))
    locked.lock = threading.Lock()
    assert type(travel(locked)) is torch.nn.Linear


def test_classes_of_one_module_are_not_kept(travel):
    torch = pytest.importorskip("torch")
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    kind = weakref.ref(type(module))
    back = travel(module)
    del module, back
    gc.collect()
    assert kind() is None


class Slotted:
    __slots__ = ("note",)


class AsACall:
    """Made anew by a call."""

    def __reduce__(self):
        return functools.partial, (dict, {"was": "made"})


class WithoutIts:
    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "optimizer"}


def schedule_of(base):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    own = type("Own", (base, torch.optim.lr_scheduler.StepLR), {})
    return optimizer, own(optimizer, 1, gamma=0.5)


def test_schedules_that_are_taken_apart_in_a_way_of_their_own(travel):
    optimizer, slotted = schedule_of(Slotted)
    slotted.note = "mine"
    optimizer, slotted = travel((optimizer, slotted))
    optimizer.step()
    slotted.step()
    assert (slotted.note, optimizer.param_groups[0]["lr"]) == ("mine", 0.5)
    assert travel(schedule_of(AsACall)[1])() == {"was": "made"}
    assert not hasattr(travel(schedule_of(WithoutIts)[1]), "optimizer")


def test_an_optimizer_that_has_stepped_has_there_too(travel):
    """torch warns where the first step is the schedule's; warnings are errors."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    _, schedule = travel((optimizer, schedule))
    schedule.step()


def test_an_optimizer_has_all_its_attributes(travel):
    """`torch.optim.LBFGS` itself keeps one that no pickle of torch has."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    optimizer.trust, optimizer.mask = 0.5, torch.ones(3)
    steps = []
    optimizer.register_step_post_hook(steps_in(steps))
    model, optimizer, steps = travel((model, optimizer, steps))

    def closure():
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 2)) - 1).square().sum()
        loss.backward()
        return loss

    before = closure().item()
    optimizer.step(closure)
    assert closure().item() < before
    assert (optimizer.trust, optimizer.mask.tolist(), steps) == (0.5, [1, 1, 1], [optimizer])


def steps_in(steps):
    """A hook that notes who stepped."""
    return functools.partial(lambda steps, optimizer, *_: steps.append(optimizer), steps)


def test_an_optimizer_that_says_itself_what_it_keeps(travel):
    torch = pytest.importorskip("torch")
    kind = type("Own", (KeepsLess, torch.optim.SGD), {})
    optimizer = kind([torch.zeros(1, requires_grad=True)], lr=1.0)
    optimizer.trust = 0.5
    assert not hasattr(travel(optimizer), "trust")


def test_a_loader_whose_workers_go_on_starts_others_there(travel, no_leaks):
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader([1, 2, 3, 4], batch_size=2, num_workers=1, persistent_workers=True)
    assert [each.tolist() for each in loader] == [[1, 2], [3, 4]]
    there = travel(loader)
    assert [each.tolist() for each in there] == [[1, 2], [3, 4]]
    assert [each.tolist() for each in loader] == [[1, 2], [3, 4]]


class KeepsLess:
    """An optimizer's own way to be taken apart."""

    def __getstate__(self):
        own = vars(self)
        return {name: own[name] for name in ("defaults", "state", "param_groups")}


class Halving:
    """A schedule of one's own, with a state of its own."""

    def __getstate__(self):
        return {**vars(self), "was": "there"}

    def __setstate__(self, state):
        vars(self).update(state)


@pytest.mark.parametrize("kind", ["StepLR", "OneCycleLR", "SequentialLR", "own"])
@pytest.mark.parametrize("is_home", [False, True])
def test_schedules_step_with_the_optimizer_that_came_along(kind, is_home, travel):
    """Warnings are errors: torch warns where an optimizer does not note its steps."""
    torch = pytest.importorskip("torch")
    schedules = torch.optim.lr_scheduler
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    half = schedules.StepLR(optimizer, 1, gamma=0.5)
    schedule = {
        "StepLR": lambda: half,
        "OneCycleLR": lambda: schedules.OneCycleLR(optimizer, 1.0, total_steps=9),
        "SequentialLR": lambda: schedules.SequentialLR(optimizer, [half], []),
        "own": lambda: type("Own", (Halving, schedules.StepLR), {})(optimizer, 1, gamma=0.5),
    }[kind]()
    expected = []
    for _ in range(2):
        travelled = travel((model, optimizer, schedule))
        model_there, optimizer_there, schedule_there = travelled
        assert schedule_there.optimizer is optimizer_there
        for _ in range(2):
            optimizer_there.zero_grad()
            model_there(torch.ones(1, 2)).sum().backward()
            optimizer_there.step()
            schedule_there.step()
        expected.append(optimizer_there.param_groups[0]["lr"])
        if is_home:  # and from there once more
            travelled = travel(travelled)
            travelled[1].step()
            travelled[2].step()
    for _ in range(2):
        optimizer.step()
        schedule.step()
    assert expected == [optimizer.param_groups[0]["lr"]] * 2
    assert kind != "own" or schedule_there.was == "there"


def test_jax_arrays(travel):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    array = jnp.arange(10_000.0)
    back = travel({"a": array, "b": jnp.ones(5000, jnp.bfloat16), "w": jnp.asarray(2.0)}, out_of_band=True)  # fmt: skip
    assert isinstance(back["a"], jax.Array)
    assert (back["a"] == array).all()
    assert back["b"].dtype == jnp.bfloat16
    weak = jnp.add(2, 1.0)
    assert weak.weak_type == travel(weak).weak_type
    key = jax.random.key(7)
    assert (jax.random.uniform(travel(key), (3,)) == jax.random.uniform(key, (3,))).all()


def test_frames_with_arrow_strings_and_more(travel):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {
            "n": range(3000),
            "s": pandas.array(["abc"] * 3000, dtype="string[pyarrow]"),
            "c": pandas.Categorical(["a", "b", "c"] * 1000),
            "d": pandas.date_range("2020", periods=3000, tz="Europe/Oslo"),
            "i": pandas.array([1, None, 3] * 1000, dtype="Int64"),
        }
    )
    back = travel(frame, out_of_band=True)
    pandas.testing.assert_frame_equal(back, frame)
    back.loc[0, "n"] = 5


def test_a_slice_of_an_arrow_table_goes_without_the_rest(travel):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"n": list(range(100_000)), "s": ["some text"] * 100_000})
    piece = table.slice(500, 20)
    assert payload.pack("piece", piece).size < 20_000
    assert travel(piece).equals(piece)
    assert travel(table["s"].chunk(0).slice(3, 4)).to_pylist() == ["some text"] * 4
    assert travel(table, out_of_band=True).equals(table)


def test_sparse_matrices_estimators_and_images(travel):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(500, 500, 0.1, format="csr", random_state=0)
    assert (travel(matrix, out_of_band=True) != matrix).nnz == 0
    linear = pytest.importorskip("sklearn.linear_model")
    fitted = linear.LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0])
    assert travel(fitted).predict([[2.0]])[0] == pytest.approx(4)
    image = pytest.importorskip("PIL.Image").new("RGB", (20, 10), "red")
    assert travel(image).getpixel((3, 3)) == (255, 0, 0)


def test_a_tensor_that_shows_little_of_its_memory_goes_without_the_rest(travel):
    torch = pytest.importorskip("torch")
    whole = torch.arange(1_000_000.0)
    part = whole[10:20]
    assert payload.pack("part", part).size < 2000
    assert torch.equal(travel(part), part)
    both = payload.pack("both", [part, whole[15:30]])
    assert both.size > 4_000_000, "two that share it keep sharing it"
    assert payload.pack("part", part.requires_grad_()).size < 2000
    assert travel(part).requires_grad


@needs("jax")
@pytest.mark.parametrize(("given", "is_rank"), [(None, False), ("true", False), (None, True)])
def test_jax_in_a_notebook_leaves_memory_of_gpus_to_ranks(monkeypatch, given, is_rank):
    import jax

    name, seen = "XLA_PYTHON_CLIENT_PREALLOCATE", []
    monkeypatch.setattr(jax, "devices", lambda: seen.append(os.environ.get(name)))
    monkeypatch.delenv(name, raising=False)
    for variable, value in ((name, given), ("COMPUTE_POOL", "{}" if is_rank else None)):
        if value:
            monkeypatch.setenv(variable, value)
    reducers._begin_jax.__wrapped__()
    assert seen == ([] if given or is_rank else ["false"])
    assert os.environ.get(name) == given
