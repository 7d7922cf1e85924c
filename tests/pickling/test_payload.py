"""Values: there and back, what they read, and why some cannot travel."""

import threading
import types
from pathlib import Path

import pytest

from skyward_nb.pickling import home_namespace as home
from skyward_nb.pickling import payload
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words.errors import PayloadError


@pytest.fixture
def store(tmp_path):
    return BlobStore(tmp_path)


def there_and_back(value, store):
    return payload.unpack(payload.pack("x", value).stow(store), store)


@pytest.mark.parametrize(
    "value", [None, 3, "text", b"\0" * 100_000, [1, (2, {3: {4}})], {"a": 1.5}, types, range(4)]
)
def test_there_and_back(value, store):
    assert there_and_back(value, store) == value


def test_equal_content_has_one_digest_and_one_file(store):
    packs = [payload.pack("x", bytearray(200_000)).stow(store) for _ in range(2)]
    assert packs[0] == packs[1]
    assert [path.name for path in store.memory.iterdir()] == [packs[0].digest]


def test_large_buffers_are_mapped_private_and_writable(store):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1_000_000)
    packed = payload.pack("a", array).stow(store)
    assert packed.data is None
    first, second = payload.unpack(packed, store), payload.unpack(packed, store)
    first[0] = 99
    assert second[0] == 0
    assert payload.unpack(packed, store)[0] == 0
    store.drop([packed.digest])
    assert list(store.memory.iterdir()) == []
    assert second.sum() == array.sum()


def test_small_arrays_are_writable_too(store):
    numpy = pytest.importorskip("numpy")
    back = there_and_back(numpy.zeros(3), store)
    back[0] = 1
    assert back.tolist() == [1, 0, 0]


def test_a_notebook_function_tells_what_it_reads_and_sees_where_it_is(store, home_namespace):
    exec("k = 2\ndef helper(x): return x * k\ndef f(x): return helper(x) + missing", home_namespace)
    bundle = payload.pack("f", home_namespace["f"])
    assert {"helper", "missing"} <= bundle.reads
    assert bundle.size < 1000
    packed = bundle.stow(store)
    there = {"__name__": "__main__", "helper": lambda x: x + 1, "missing": 100}
    home.set_home(there)
    f = payload.unpack(packed, store)
    assert f(1) == 102
    there["missing"] = 0
    assert f(1) == 2


def test_methods_closures_and_instances_tell_what_they_read(home_namespace):
    exec(
        "class C:\n"
        "    def m(self): return outside\n"
        "def make(n):\n"
        "    return lambda x: x + n + elsewhere\n"
        "c = C(); g = make(3); deep = {'a': [c.m]}",
        home_namespace,
    )
    assert "outside" in payload.pack("c", home_namespace["c"]).reads
    assert "elsewhere" in payload.pack("g", home_namespace["g"]).reads
    assert "outside" in payload.pack("deep", home_namespace["deep"]).reads


def test_what_cloudpickle_does_not_see_is_read_too(home_namespace):
    exec(
        "def make():\n    class Net:\n        layer = width\n        lr = lr\n        twice = layer\n"
        "        def m(self): return deep\n    return Net\n"
        "def fetch(url):\n    get_ipython().system('wget -P {folder} {url}')\n",
        home_namespace,
    )
    reads = payload.pack("make", home_namespace["make"]).reads
    assert {"width", "lr", "deep"} <= reads and "layer" not in reads
    assert "folder" in payload.pack("fetch", home_namespace["fetch"]).reads


def test_a_class_is_one_class_across_sends(store, home_namespace):
    exec("class C: pass\na, b = C(), C()", home_namespace)
    a, b = (there_and_back(home_namespace[name], store) for name in "ab")
    assert type(a) is type(b) is home_namespace["C"]


class Trainer:
    def __init__(self) -> None:
        self.name = "t"
        self.callbacks = [1, 2, {"lock": threading.Lock()}]


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        (Trainer(), "t.callbacks[2]['lock']", "_thread.lock"),
        (threading.Lock(), "t", "_thread.lock"),
        ((i for i in ()), "t", "generator"),
        ([{"a": Path(__file__).open("ab")}], "t[0]['a']", "_io.BufferedWriter"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_cannot_travel_is_named(value, path, kind):
    with pytest.raises(PayloadError) as caught:
        payload.pack("t", value)
    assert caught.value.path == path
    assert caught.value.type_name == kind
    assert caught.value.name == "t"
    assert path in str(caught.value)


def test_a_lock_in_a_closure_is_named(home_namespace):
    exec(
        "import threading\ndef make():\n    lock = threading.Lock()\n    return lambda: lock\n"
        "f = make()",
        home_namespace,
    )
    with pytest.raises(PayloadError) as caught:
        payload.pack("f", home_namespace["f"])
    assert caught.value.path == "f.<lock>"


def test_a_reduce_that_raises_is_told(home_namespace):
    class Bad:
        def __reduce__(self):
            raise ValueError("no way")

    with pytest.raises(PayloadError, match="no way"):
        payload.pack("bad", [Bad()])


def test_a_put_that_fails_leaves_no_half_blob(tmp_path):
    store = BlobStore(tmp_path)
    with pytest.raises(TypeError):
        store.put("d", [b"x" * 100, object()])
    assert list(tmp_path.iterdir()) == []
