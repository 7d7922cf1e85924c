"""What torch does with the names that are used of it, in a group of one process."""

import pytest
from later import Later, needs

from skyward_nb.compat import torch_models_private, torch_private

pytestmark = needs("torch")
torch, dist = Later("torch"), Later("torch.distributed")


@pytest.fixture
def alone():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    if dist.is_initialized():
        dist.destroy_process_group()


def test_groups_are_found_in_their_order_with_their_backends(alone):
    another = dist.new_group([0], backend="gloo")
    (first, backend), (second, _) = torch_private.groups()
    assert (first, second) == (alone, another)
    assert "gloo" in backend
    dist.destroy_process_group()
    assert torch_private.groups() == []


def test_groups_are_numbered_anew(alone):
    dist.destroy_process_group()
    names = []
    for _ in range(2):
        torch_private.number_groups_anew()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        names.append(dist.group.WORLD.group_name)
        dist.destroy_process_group()
    assert names[0] == names[1]


def test_each_new_group_is_made_by_one_function(alone):
    made = []

    def by(make):
        def counted(*args, **kwargs):
            made.append(1)
            return make(*args, **kwargs)

        return counted

    with torch_private.making_groups(by):
        dist.new_group([0])
    dist.new_group([0])
    assert made == [1]


def test_collectives_are_counted(alone):
    before = torch_private.collectives_begun(alone)
    dist.all_reduce(torch.zeros(1))
    assert torch_private.collectives_begun(alone) == before + 1


def test_ranks_meet_by_these_schemes(alone):
    assert {"env", "tcp", "file"} <= set(torch_private.ways_to_meet())
    assert torch_private.timeout_of("gloo").total_seconds() > 60


def test_without_groups_there_are_none():
    assert not dist.is_initialized()
    assert torch_private.groups() == []


@pytest.mark.parametrize("kind", ["uint16", "float8_e5m2"])
def test_a_tensor_of_a_new_type_is_rebuilt(kind):
    tensor = torch.arange(6, dtype=torch.uint8).view(getattr(torch, kind))
    make, (storage, *rest) = tensor.__reduce_ex__(5)
    assert torch_private.is_of_a_new_type(make)
    again = torch_private.rebuild_of_a_new_type(storage, *rest)
    assert again.dtype == tensor.dtype
    assert again.view(torch.uint8).tolist() == list(range(6))
    plain, *_ = torch.zeros(2).__reduce_ex__(5)
    assert not torch_private.is_of_a_new_type(plain)


def test_a_storage_has_one_below_it():
    untyped = torch.zeros(2).untyped_storage()
    typed = torch_private.typed_storage(untyped, torch.float32)
    assert torch_private.untyped_storage(typed) is untyped


def test_a_schedule_has_its_optimizer_note_its_steps():
    for note in (lambda each: torch.optim.lr_scheduler.StepLR(each, 1), torch_private.note_steps):
        optimizer = torch.optim.SGD([torch.zeros(1)])
        assert not hasattr(optimizer.step, "_wrapped_by_lr_sched")
        note(optimizer)
        assert optimizer.step._wrapped_by_lr_sched
        optimizer.step()
        assert optimizer._opt_called


def test_it_is_known_whether_the_profiler_records():
    assert not torch_private.is_profiled()
    with torch.autograd.profiler.profile():
        assert torch_private.is_profiled()


def test_a_module_keeps_what_is_known_of_it_in_its_tables():
    attributes = vars(torch.nn.Linear(1, 1))
    assert set(torch_models_private.MODULE_TABLES) <= set(attributes)
    assert [name for name in attributes if torch_models_private.holds_hooks(name)]


def test_what_compiled_a_function_compiles_another_in_the_same_way():
    told = []

    def backend(graph, _):
        told.append(graph)
        return graph.forward

    def plus(x):
        return x + 1

    parts = torch_models_private.compiled_of(torch.compile(plus, backend=backend))
    assert parts is not None
    compiler, function = parts
    assert function is plus
    assert compiler(lambda x: x * 2)(torch.ones(1)).item() == 2
    assert len(told) == 1
    assert torch_models_private.compiled_of(plus) is None


def test_gradients_that_are_not_reduced_are_dropped(alone):
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(2, 2)
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
    model.set_requires_gradient_sync(False)
    model(torch.ones(1, 2)).sum().backward()
    (kept,) = [each for each in model._get_fsdp_state()._fsdp_param_groups if each]

    def held():
        return [
            gradient
            for each in kept.fsdp_params
            for gradient in (each.unsharded_accumulated_grad, each._unsharded_param.grad)
            if gradient is not None
        ]

    assert held()
    torch_models_private.drop_unreduced_gradients(model)
    assert not held()


def test_a_group_goes_on_with_other_backends_until_their_numbers_end(alone):
    sub = dist.new_group([0])
    for number in (torch_private.FIRST_TYPE, torch_private.LAST_TYPE):
        for group in (alone, sub):
            assert torch_private.is_exchangeable(group)
            (old,) = torch_private.backends_of(group)
            torch_private.exchange_backend(group, old, dist.HashStore(), number)
            (new,) = torch_private.backends_of(group)
            assert new is not old
            assert torch_private.collectives_begun(group) == 0
            one = torch.ones(1)
            dist.all_reduce(one, group=group)
            assert torch_private.collectives_begun(group) == 1
            assert new.options._timeout == old.options._timeout
    assert torch_private.ranks_of(sub) == (0,)
    assert dist.get_backend() == "gloo"
    with pytest.raises(ValueError):
        torch_private.exchange_backend(alone, new, dist.HashStore(), torch_private.LAST_TYPE + 1)


def test_models_begin_a_pass_anew(alone):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

    assert torch_models_private.FullySharded.kind() is FSDPState

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.clone()

        @staticmethod
        def backward(*_):
            raise ValueError

    for wrap in (torch.nn.parallel.DistributedDataParallel, fully_shard):
        first = torch.nn.Linear(2, 2)
        model = wrap(torch.nn.Sequential(torch.nn.Linear(2, 2), first))
        model(torch.ones(1, 2)).sum().backward()
        fsdp = getattr(model, "_get_fsdp_state", None)
        state = torch_models_private.FullySharded(fsdp()) if fsdp else None

        def is_unfinished(model=model, state=state):
            return state.is_unfinished() if state else torch_models_private.is_unfinished(model)

        assert not is_unfinished()
        layers = list(model.children()) if fsdp else list(model.module.children())
        handle = layers[0].register_forward_hook(lambda _, __, out: Fails.apply(out))
        with pytest.raises(ValueError):
            model(torch.ones(1, 2)).sum().backward()
        handle.remove()
        assert is_unfinished()
        state.begin_anew() if state else torch_models_private.begin_anew(model)
        assert not is_unfinished()
        model(torch.ones(1, 2)).sum().backward()
        assert all(each.grad is not None for each in model.parameters())


def test_backward_passes_are_watched():
    seen = []
    torch_private.watch_backward(lambda: seen.append(torch_private.is_in_backward()))
    torch_private.watch_backward(lambda: seen.append(torch_private.is_in_backward()))
    x = torch.ones(1, requires_grad=True)
    (2 * x).backward()
    torch.autograd.grad(2 * x, x)
    torch_private.watch_backward(None)
    (2 * x).backward()
    assert seen == [False, False]


def test_collectives_that_a_gpu_has_not_ended(monkeypatch):
    """By torch's record: later than the last one that ended in its line, and than what was cut."""

    def entry(number, name, state, group="0", is_p2p=False):
        return {
            "record_id": number, "profiling_name": f"nccl:{name}", "state": state,
            "process_group": (group, "default_pg"), "is_p2p": is_p2p, "time_created_ns": 100 + number,
        }  # fmt: skip

    told = [
        entry(0, "send", "scheduled", is_p2p=True),  # a part of the next one
        entry(1, "coalesced", "completed", is_p2p=True),
        entry(2, "all_reduce", "completed"),
        entry(3, "all_gather", "started"),
        entry(4, "broadcast", "scheduled", group="1"),
    ]
    monkeypatch.setattr(torch_private, "_recorded", lambda: told)
    assert torch_private.collectives_on_gpu(-1) == ["all_gather", "broadcast"]
    assert torch_private.collectives_on_gpu(3) == ["broadcast"]
    assert torch_private.last_recorded() == 4
    assert torch_private.collectives_on_gpu(4) == []
    assert torch_private.begun_and_not_ended(-1) == 103
    assert torch_private.begun_and_not_ended(4) is None
