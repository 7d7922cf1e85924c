"""`sky.shard`: the union of all ranks' parts is the whole, without overlap, in its own type."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward_nb as sky
from skyward_nb.words.info import COMPUTE_POOL, InstanceInfo


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


@given(st.integers(0, 60), st.integers(1, 8), st.booleans(), st.integers(0, 5))
def test_union_is_the_whole_without_overlap(size, world, shuffle, seed):
    found = parts(world, list(range(size)), shuffle=shuffle, seed=seed)
    assert sorted(item for part in found for item in part) == list(range(size))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@given(st.integers(0, 60), st.integers(1, 8), st.booleans())
def test_drop_last_gives_equal_sizes(size, world, shuffle):
    found = parts(world, list(range(size)), shuffle=shuffle, drop_last=True)
    assert {len(part) for part in found} == {size // world}
    assert len({item for part in found for item in part}) == size - size % world


def test_rank_r_gets_every_nth():
    assert parts(3, list("abcdefg")) == [["a", "d", "g"], ["b", "e"], ["c", "f"]]


def test_several_stay_aligned():
    for xs, ys in parts(4, list(range(10)), [i * i for i in range(10)], shuffle=True):
        assert ys == [x * x for x in xs]


@pytest.mark.parametrize(
    ("value", "kind"), [([1, 2, 3], list), ((1, 2, 3), tuple), (range(5), range)]
)
def test_types_are_kept(value, kind):
    assert all(type(part) is kind for part in parts(2, value))


def test_arrays_keep_their_type():
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(12).reshape(6, 2)
    first, second = parts(2, array)
    assert first.tolist() == [[0, 1], [4, 5], [8, 9]]
    shuffled = parts(2, array, shuffle=True)
    assert sorted(row[0] for part in shuffled for row in part.tolist()) == [0, 2, 4, 6, 8, 10]
    assert isinstance(second, numpy.ndarray)


@pytest.mark.torch
def test_tensors_keep_their_type():
    torch = pytest.importorskip("torch")
    first, _ = parts(2, torch.arange(5), shuffle=True, seed=3)
    assert isinstance(first, torch.Tensor)
    assert len(first) == 3


@pytest.mark.parametrize("value", ["text", b"bytes", {"a": 1}, {1}, iter([]), 3])
def test_what_is_not_split(value):
    with pytest.raises(TypeError, match=r"sky\.shard"):
        sky.shard(value)


def test_unequal_lengths_name_the_lengths():
    with pytest.raises(ValueError, match="3, 2"):
        sky.shard([1, 2, 3], [1, 2])


def test_outside_a_pool_everything_is_ours(monkeypatch):
    monkeypatch.delenv(COMPUTE_POOL, raising=False)
    assert sky.shard([1, 2]) == [1, 2]
    assert sky.instance_info().world_size == 1
    assert sky.is_head()
    sky.barrier()


def test_a_barrier_without_a_process_group_says_what_is_missing(as_rank):
    as_rank(0, 2)
    with pytest.raises(RuntimeError, match="framework=torch"):
        sky.barrier()
