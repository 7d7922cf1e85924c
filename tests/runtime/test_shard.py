"""`sky.shard`: the union of all ranks' parts is the whole, without overlap, in its own type."""

import array
import collections
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward_nb as sky
from skyward_nb.words.info import COMPUTE_POOL, InstanceInfo

SIZES = st.one_of(st.integers(0, 12), st.integers(0, 3000))
WORLDS = st.integers(1, 9)


@pytest.fixture
def as_rank(monkeypatch):
    def become(rank, world):
        info = InstanceInfo(rank=rank, world_size=world)
        monkeypatch.setenv(COMPUTE_POOL, msgspec.json.encode(info).decode())

    return become


def parts(world, *arrays, **options):
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for rank in range(world):
            info = InstanceInfo(rank=rank, world_size=world)
            patch.setenv(COMPUTE_POOL, msgspec.json.encode(info).decode())
            found.append(sky.shard(*arrays, **options))
        return found


# ── which items ─────────────────────────────────────────────────────────────────────────


@given(SIZES, WORLDS, st.booleans(), st.integers())
def test_union_is_the_whole_without_overlap(size, world, shuffle, seed):
    found = parts(world, list(range(size)), shuffle=shuffle, seed=seed)
    assert sorted(item for part in found for item in part) == list(range(size))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@given(SIZES, WORLDS, st.booleans(), st.integers())
def test_drop_last_gives_equal_sizes(size, world, shuffle, seed):
    found = parts(world, list(range(size)), shuffle=shuffle, seed=seed, drop_last=True)
    assert {len(part) for part in found} == {size // world}
    assert len({item for part in found for item in part}) == size - size % world


@given(SIZES, WORLDS, st.integers())
def test_ranks_share_out_one_order_that_is_the_seeds(size, world, seed):
    """Also for another number of ranks: what differs is only who has which."""
    (whole,) = parts(1, list(range(size)), shuffle=True, seed=seed)
    found = parts(world, list(range(size)), shuffle=True, seed=seed)
    assert found == [whole[rank::world] for rank in range(world)]


@given(st.lists(st.integers()), WORLDS)
def test_rank_r_gets_every_nth(items, world):
    assert parts(world, items) == [items[rank::world] for rank in range(world)]


@given(SIZES, WORLDS, st.booleans(), st.booleans())
def test_several_stay_aligned(size, world, shuffle, drop_last):
    numpy = pytest.importorskip("numpy")
    xs, squares = list(range(size)), numpy.arange(size) ** 2
    for x, y, z in parts(world, xs, squares, range(size), shuffle=shuffle, drop_last=drop_last):
        assert y.tolist() == [each * each for each in x]
        assert list(z) == x


def test_seeds_and_lengths_give_splits_of_their_own():
    found = [parts(2, list(range(100)), shuffle=True, seed=seed)[0] for seed in range(20)]
    assert len({tuple(each) for each in found}) == 20
    assert parts(2, list(range(100)), shuffle=True)[0] == found[0]


def test_a_seed_is_a_whole_number():
    numpy = pytest.importorskip("numpy")
    one = sky.shard([1, 2, 3, 4], shuffle=True, seed=numpy.int64(3))
    assert one == sky.shard([1, 2, 3, 4], shuffle=True, seed=3)
    with pytest.raises(TypeError):
        sky.shard([1, 2], shuffle=True, seed=0.5)


def test_the_split_is_the_same_without_numpy(as_rank):
    """In a process that cannot import it."""
    pytest.importorskip("numpy")
    as_rank(1, 3)
    code = (
        "import sys; sys.modules['numpy'] = None\nimport skyward_nb as sky\n"
        "print(sum(n * i for n, i in enumerate(sky.shard(list(range(50_000)), shuffle=True))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    numpy = pytest.importorskip("numpy")
    mine = sky.shard(numpy.arange(50_000), shuffle=True)
    assert int(done.stdout) == sum(n * i for n, i in enumerate(mine.tolist()))


# ── of which type ───────────────────────────────────────────────────────────────────────

Point = collections.namedtuple("Point", "x y z")


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2, 3], list),
        ((1, 2, 3), tuple),
        (Point(1, 2, 3), tuple),
        (range(5), range),
        (range(0), range),
        (collections.UserList([1]).data, list),
    ],
)
def test_types_are_kept(value, kind, shuffle):
    kind = list if shuffle and kind is range else kind
    assert all(type(part) is kind for part in parts(2, value, shuffle=shuffle))


def numpy_of(size):
    numpy = pytest.importorskip("numpy")
    return numpy.arange(2 * size).reshape(size, 2), lambda part: (part[:, 0] // 2).tolist()


def fortran_of(size):
    numpy = pytest.importorskip("numpy")
    made, items = numpy_of(size)
    return numpy.asfortranarray(made), items


def records_of(size):
    numpy = pytest.importorskip("numpy")
    made = numpy.zeros(size, dtype=[("a", "i8"), ("b", "f4")])
    made["a"] = range(size)
    return made, lambda part: part["a"].tolist()


def masked_of(size):
    numpy = pytest.importorskip("numpy")
    return numpy.ma.masked_array(
        range(size), [n % 2 for n in range(size)]
    ), lambda part: part.data.tolist()


def torch_of(size):
    torch = pytest.importorskip("torch")
    return torch.arange(2 * size).reshape(size, 2), lambda part: (part[:, 0] // 2).tolist()


def sparse_tensor_of(size):
    torch = pytest.importorskip("torch")
    made = torch.stack([torch.ones(size), torch.arange(size)], 1).to_sparse()
    return made, lambda part: part.to_dense()[:, 1].int().tolist()


def jax_of(size):
    jax = pytest.importorskip("jax")
    return jax.numpy.arange(size), lambda part: part.tolist()


def frame_of(size):
    pandas = pytest.importorskip("pandas")
    made = pandas.DataFrame({"a": range(size), "b": "text"})
    return made, lambda part: part["a"].tolist()


def series_of(size):
    pandas = pytest.importorskip("pandas")
    return pandas.Series(range(size), index=[f"{n}" for n in range(size)]), list


def index_of(size):
    pandas = pytest.importorskip("pandas")
    made = pandas.Index([f"{n}" for n in range(size)], dtype="str")
    return made, lambda part: [int(each) for each in part]


def hugging_face_of(size):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"a": list(range(size))}), lambda part: list(part["a"])


def arrow_of(size):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({"a": list(range(size))}), lambda part: part["a"].to_pylist()


def polars_of(size):
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"a": range(size)}), lambda part: part["a"].to_list()


def polars_series_of(size):
    polars = pytest.importorskip("polars")
    return polars.Series(range(size)), lambda part: part.to_list()


def sparse_of(kind):
    def of(size):
        numpy, sparse = pytest.importorskip("numpy"), pytest.importorskip("scipy.sparse")
        dense = numpy.stack([numpy.ones(size), numpy.arange(size)], 1)
        return getattr(sparse, kind)(dense), lambda part: part.toarray()[:, 1].astype(int).tolist()

    of.__name__ = kind
    return of


class Squares:
    """The least that torch calls a map-style data set."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, place):
        return place**2


def roots(part):
    return [int(each**0.5) for each in (part[n] for n in range(len(part)))]


def squares(size):
    data = pytest.importorskip("torch.utils.data")
    return type("Set", (Squares, data.Dataset), {})(size)


def test_a_data_set_may_have_the_shape_of_an_item(as_rank):
    data = pytest.importorskip("torch.utils.data")
    as_rank(0, 2)
    pictures = type("Set", (Squares, data.Dataset), {"shape": (3, 32, 32)})(10)
    assert roots(sky.shard(pictures)) == [0, 2, 4, 6, 8]


def subset_of(size):
    data = pytest.importorskip("torch.utils.data")
    made = data.Subset(squares(2 * size), range(1, 2 * size, 2))
    return made, lambda part: [each // 2 for each in roots(part)]


def subset_of_a_subset_of(size):
    data = pytest.importorskip("torch.utils.data")
    within = data.Subset(squares(2 * size), list(range(2 * size)))
    return data.Subset(within, list(range(0, 2 * size, 2))), lambda part: [
        each // 2 for each in roots(part)
    ]


KINDS = [
    numpy_of,
    fortran_of,
    records_of,
    masked_of,
    torch_of,
    sparse_tensor_of,
    jax_of,
    frame_of,
    series_of,
    index_of,
    hugging_face_of,
    arrow_of,
    polars_of,
    polars_series_of,
    *(
        sparse_of(f"{form}_{kind}")
        for form in ("csr", "csc", "coo", "bsr", "lil", "dok")
        for kind in ("array", "matrix")
    ),
    subset_of,
    subset_of_a_subset_of,
]
NEVER_EMPTY = ("bsr", "dok", "sparse_tensor")


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("of", "size"),
    [
        (of, size)
        for of in KINDS
        for size in (10, 2, 1, 0)
        if size or not of.__name__.startswith(NEVER_EMPTY)
    ],
)
def test_items_and_types_of_libraries(of, size, shuffle):
    """Three ranks; the items are those of a list of the same length."""
    value, items = of(size)
    found = parts(3, value, shuffle=shuffle, seed=4)
    assert {type(part) for part in found} == {type(value)}
    assert [items(part) for part in found] == parts(3, list(range(size)), shuffle=shuffle, seed=4)


@pytest.mark.torch
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_torch_data_set_becomes_a_subset(shuffle):
    data = pytest.importorskip("torch.utils.data")
    whole = squares(10)
    found = parts(3, whole, shuffle=shuffle)
    assert [roots(part) for part in found] == parts(3, list(range(10)), shuffle=shuffle)
    assert all(type(part) is data.Subset and part.dataset is whole for part in found)
    loaded = [int(item) for part in found for item in data.DataLoader(part, batch_size=None)]
    assert sorted(loaded) == [n * n for n in range(10)]


@pytest.mark.torch
def test_a_subset_of_ones_own_kind_keeps_its_own_items():
    data = pytest.importorskip("torch.utils.data")

    class Negative(data.Subset):
        def __getitem__(self, place):
            return -super().__getitem__(place)

        def __getitems__(self, places):
            return [self[place] for place in places]

    (part,) = parts(1, Negative(squares(4), [3, 1]), drop_last=True)
    assert [part[0], part[1]] == [-9, -1]


@pytest.mark.torch
def test_tensors_keep_what_they_are():
    torch = pytest.importorskip("torch")
    weights = torch.ones(4, 2, dtype=torch.bfloat16, requires_grad=True)
    for part in parts(2, weights, shuffle=True):
        assert part.dtype is torch.bfloat16
        part.sum().backward()
    assert weights.grad.sum() == 8


# ── what is not split ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("text", "give a list"),
        (b"bytes", "give a list"),
        (memoryview(b"bytes"), "give a list"),
        ({"a": 1}, r"shard\(\*d\.values\(\)\)"),
        ({1}, "sorted"),
        (iter([]), r"list\(\.\.\.\)"),
        ((n for n in "ab"), r"list\(\.\.\.\)"),
        (3, "give a list"),
        (None, "give a list"),
        (collections.deque([1]), "give a list"),
        (array.array("i", [1]), "give a list"),
        (Squares(3), r"torch\.utils\.data\.Dataset"),
    ],
)
def test_what_is_not_split(value, says):
    with pytest.raises(TypeError, match=rf"sky\.shard: {type(value).__name__} .*{says}"):
        sky.shard(value)


@pytest.mark.parametrize("module", ["numpy", "torch", "jax.numpy"])
def test_an_array_without_dimensions(module):
    library = pytest.importorskip(module)
    value = (library.tensor if module == "torch" else library.array)(1)
    with pytest.raises(TypeError, match=r"without dimensions .*reshape"):
        sky.shard(value)


@pytest.mark.torch
def test_torch_data_that_is_read_in_a_row():
    data = pytest.importorskip("torch.utils.data")
    with pytest.raises(TypeError, match=r"DataLoader .*DistributedSampler"):
        sky.shard(data.DataLoader(squares(3)))

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter([1])

    with pytest.raises(TypeError, match=r"Stream .*__iter__"):
        sky.shard(Stream())


@pytest.mark.torch
def test_a_torch_data_set_without_a_length():
    data = pytest.importorskip("torch.utils.data")
    with pytest.raises(TypeError, match="__len__"):
        sky.shard(type("Set", (data.Dataset,), {"__getitem__": lambda *_: 0})())


def test_hugging_face_data_that_is_no_table():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"a": [1, 2]})
    with pytest.raises(TypeError, match="split_dataset_by_node"):
        sky.shard(table.to_iterable_dataset())
    with pytest.raises(TypeError, match="one of its splits"):
        sky.shard(datasets.DatasetDict(train=table))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=4))
def test_unequal_lengths_name_the_lengths(lengths):
    arrays = [[0] * length for length in lengths]
    if len(set(lengths)) == 1:
        assert len(sky.shard(*arrays)) == len(lengths)
        return
    with pytest.raises(ValueError, match=", ".join(map(str, lengths))):
        sky.shard(*arrays)


def test_nothing_to_split():
    with pytest.raises(TypeError, match="at least one"):
        sky.shard()


def test_outside_a_pool_everything_is_ours(monkeypatch):
    monkeypatch.delenv(COMPUTE_POOL, raising=False)
    assert sky.shard([1, 2]) == [1, 2]
    assert sky.instance_info().world_size == 1
    assert sky.is_head()
    assert (sky.rank(), sky.world_size(), sky.device()) == (0, 1, "cpu")
    sky.barrier()


def test_a_barrier_without_a_process_group_says_what_is_missing(as_rank):
    as_rank(0, 2)
    with pytest.raises(RuntimeError, match="framework=torch"):
        sky.barrier()


def test_the_sampler_without_torch_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\nimport skyward_nb as sky\n"
        "from skyward_nb import *\nassert 'DistributedSampler' in dir(sky)\n"
        "try: sky.DistributedSampler\nexcept sky.MissingDependency as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "skyward-nb[torch]"' in done.stdout


def test_ranks_along_tp_get_the_same_items(monkeypatch):
    place = {"total_nodes": 4, "world_size": 4, "mesh": (("fsdp", 2), ("tp", 2))}
    parts = []
    for rank in range(4):
        info = InstanceInfo(rank=rank, node=rank, **place)
        monkeypatch.setenv("COMPUTE_POOL", msgspec.json.encode(info).decode())
        parts.append(sky.shard(list(range(5))))
    assert parts == [[0, 2, 4], [0, 2, 4], [1, 3], [1, 3]]
