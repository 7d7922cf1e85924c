"""`sky.DistributedSampler`: torch's own, with the pool's place, without a process group."""

import inspect

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from later import Later, needs

import skyward_nb as sky
from skyward_nb.words.info import COMPUTE_POOL, InstanceInfo


def on_ranks(world, made):
    """What `made()` gives on each rank."""
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for rank in range(world):
            info = InstanceInfo(rank=rank, world_size=world)
            patch.setenv(COMPUTE_POOL, msgspec.json.encode(info).decode())
            found.append(made())
        return found


pytestmark = [pytest.mark.torch, needs("torch")]
data = Later("torch.utils.data")


@given(st.integers(0, 50), st.integers(1, 8), st.booleans(), st.integers(0, 99), st.integers(0, 3))
def test_padding_gives_every_item_and_everyone_as_many(size, world, shuffle, seed, epoch):
    def made():
        sampler = sky.DistributedSampler(range(size), shuffle=shuffle, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    found = on_ranks(world, made)
    assert {len(part) for part in found} == {-(-size // world)}
    assert {item for part in found for item in part} == set(range(size))


@given(st.integers(0, 50), st.integers(1, 8), st.booleans())
def test_drop_last_gives_no_item_twice(size, world, shuffle):
    found = on_ranks(
        world, lambda: list(sky.DistributedSampler(range(size), shuffle=shuffle, drop_last=True))
    )
    assert {len(part) for part in found} == {size // world}
    assert len({item for part in found for item in part}) == size // world * world


@pytest.mark.parametrize("size", [0, 1, 3, 10])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_rank_has_as_many_batches(size, drop_last):
    def made():
        sampler = sky.DistributedSampler(list(range(size)), drop_last=drop_last)
        loader = data.DataLoader(list(range(size)), batch_size=2, sampler=sampler)
        batches = [batch.tolist() for batch in loader]
        assert len(batches) == len(loader)
        return batches

    found = on_ranks(4, made)
    assert len({len(batches) for batches in found}) == 1
    assert len({tuple(map(len, batches)) for batches in found}) == 1


def test_epochs_differ_and_ranks_agree_on_them():
    def made():
        sampler = sky.DistributedSampler(range(40), seed=3)
        epochs = []
        for epoch in (0, 1, 0):
            sampler.set_epoch(epoch)
            epochs.append(list(sampler))
        return epochs

    first, second = on_ranks(2, made)
    assert first[0] == first[2] != first[1]
    for mine, others in zip(first, second, strict=True):
        assert sorted(mine + others) == list(range(40))


def test_it_is_torchs_own_with_its_defaults():
    (sampler,) = on_ranks(1, lambda: sky.DistributedSampler(range(4)))
    assert isinstance(sampler, data.DistributedSampler)
    torchs = inspect.signature(data.DistributedSampler).parameters
    for name, parameter in inspect.signature(sky.DistributedSampler).parameters.items():
        assert parameter.default == torchs[name].default
    (second,) = on_ranks(2, lambda: sky.DistributedSampler(range(9)))[1:]
    with_place = data.DistributedSampler(range(9), num_replicas=2, rank=1)
    assert list(second) == list(with_place)


def test_outside_a_pool_it_gives_everything(monkeypatch):
    monkeypatch.delenv(COMPUTE_POOL, raising=False)
    assert list(sky.DistributedSampler(range(5), shuffle=False)) == [0, 1, 2, 3, 4]


def test_what_has_no_length_is_refused():
    class Endless(data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    for each, kind in ((iter([1, 2]), "list_iterator"), (Endless(), "Endless")):
        with pytest.raises(TypeError, match=f"DistributedSampler: {kind} has no length to take"):
            sky.DistributedSampler(each)
