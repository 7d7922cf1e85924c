"""One model, spread in every way over real ranks, trains as it does on one."""

from __future__ import annotations

import importlib.util

import pytest
from later import needs
from leaks import leaves_nothing
from pools import start, values
from runtime.tiny_model import MODEL
from tiers import few

from skyward_nb.plugins.torch_plugin import TorchPlugin
from skyward_nb.runtime.parallelize import full_state, parallelize
from skyward_nb.runtime.sync import data_place, mesh

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
]
needs_transformers = needs("transformers")

MESHES = '''
from torch.distributed.device_mesh import init_device_mesh

def arranged(axes):
    if axes not in meshes:
        pairs = [each.split(":") for each in axes.split(",")]
        meshes[axes] = init_device_mesh("cpu", tuple(int(size) for _, size in pairs), mesh_dim_names=tuple(n for n, _ in pairs))
    return meshes[axes]

def spread(make, axes, **options):
    "A model made with another seed on each rank but the first."
    return sky.parallelize(made(make, dist.get_rank()), mesh=arranged(axes), **options)

def compare(make, axes, foreach=False, **options):
    """Largest differences of losses and of weights from those of one rank.

    Gradients are clipped one by one: for all at once torch looks through every way in which they may lie on
    the ranks, which takes half of the time of all.
    """
    name = make.__name__
    if name not in alone:
        model = made(make)
        alone[name] = train(model, steps=4), model.state_dict()
    losses, weights = alone[name]
    model = spread(make, axes, **options)
    mine = train(model, sky.data_place(arranged(axes)), 4, foreach)
    whole = sky.full_state(model)
    assert list(whole) == (list(weights) if sky.is_head() else [])
    apart = max(((whole[each].float() - weights[each].float()).abs().max().item() for each in whole), default=0.0)
    return max(abs(a - b) for a, b in zip(mine, losses, strict=True)), apart, losses[0] - losses[-1]

meshes, alone = {}, {}
'''
LLAMAS = """
import transformers

def small(**more):
    return dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=32, intermediate_size=64,
                num_key_value_heads=4, pad_token_id=0, bos_token_id=0, eos_token_id=0) | more
def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**small()))
def few_heads():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**small(num_key_value_heads=2)))
def qwen():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**small(head_dim=8, tie_word_embeddings=True)))
def mixtral():
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**small(num_local_experts=4)))
"""

LLAMAS_NEED = [
    f"transformers.models.{name}.modeling_{name}"
    for name in ("llama", "qwen3", "mixtral")
    if importlib.util.find_spec("transformers")
]


@pytest.fixture(scope="module")
def pool():
    """Four ranks, whose forge has imported once what each of them would."""
    with leaves_nothing(), pytest.MonkeyPatch.context() as patch:
        before = TorchPlugin.preload
        patch.setattr(TorchPlugin, "preload", lambda *given: (*before(*given), *LLAMAS_NEED))
        made = start(nodes=4, framework=("torch",))
        try:
            values(made, f"{MODEL}{MESHES}\nNone")
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def with_llamas(pool):
    values(pool, f"{LLAMAS}\nNone")
    return pool


def but_more(some, *others):
    """Meshes that `make test` plays, and those that `--all` does."""
    return [some, *(pytest.param(each, marks=pytest.mark.extensive) for each in others)]


def agree(pool, what, axes, options=""):
    for loss, weight, learnt in values(pool, f"compare({what}, {axes!r}{options})"):
        assert loss < 1e-4
        assert weight < 1e-4
        assert learnt > 0.1


MESHES_OF_TINY = ("dp:2,tp:2", "fsdp:2,tp:2", "fsdp:4,tp:1", "fsdp:1,tp:4", "tp:2,fsdp:2", "dp:4")


@pytest.mark.parametrize("axes", but_more("dp:2,fsdp:2", *MESHES_OF_TINY))
def test_a_model_trains_the_same_on_every_mesh(pool, axes):
    agree(pool, "Tiny", axes, ", foreach=None" if axes == "dp:2,fsdp:2" else "")


@pytest.mark.extensive
@pytest.mark.parametrize("axes", but_more("fsdp:2,tp:2", "fsdp:4"))
def test_a_weight_that_two_layers_share_stays_one(pool, axes):
    agree(pool, "tied", axes)
    same = "model = spread(tied, %r)\nmodel.words._parameters['weight'] is model.head._parameters['weight']"
    assert all(values(pool, same % axes))


@needs_transformers
@pytest.mark.parametrize(
    "axes", but_more("fsdp:2,tp:2", "fsdp:4,tp:1", "fsdp:1,tp:4", "dp:2,fsdp:2")
)
def test_a_llama_trains_the_same_on_every_mesh(with_llamas, axes):
    agree(with_llamas, "llama", axes)


@pytest.mark.extensive
@needs_transformers
def test_norms_that_see_only_the_heads_of_their_rank_learn_from_all(with_llamas):
    agree(with_llamas, "qwen", "fsdp:2,tp:2")


@needs_transformers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("what", "axes", "says"),
    [
        ("few_heads", "tp:4", "num_key_value_heads=2 cannot be split by tp=4"),
        ("mixtral", "fsdp:2,tp:2", "mlp.experts"),
    ],
)
def test_what_of_a_plan_cannot_be_followed_is_told_and_right_all_the_same(
    with_llamas, what, axes, says
):
    agree(with_llamas, what, axes)
    warned = (
        "with warnings.catch_warnings(record=True) as told:\n    warnings.simplefilter('always')\n"
        f"    spread({what}, {axes!r})\n[str(each.message) for each in told]"
    )
    for told in values(with_llamas, warned):
        assert len([each for each in told if says in each]) == 1


@needs_transformers
def test_a_llama_is_split_as_its_own_plan_says(with_llamas):
    shapes = (
        "model = spread(llama, 'tp:4')\n"
        "{n: tuple(p.to_local().shape) for n, p in model.named_parameters() if 'layers.1' not in n}"
    )
    assert values(with_llamas, shapes)[3] == {
        "model.embed_tokens.weight": (8, 32),
        "model.layers.0.self_attn.q_proj.weight": (8, 32),
        "model.layers.0.self_attn.k_proj.weight": (8, 32),
        "model.layers.0.self_attn.v_proj.weight": (8, 32),
        "model.layers.0.self_attn.o_proj.weight": (32, 8),
        "model.layers.0.mlp.gate_proj.weight": (16, 32),
        "model.layers.0.mlp.up_proj.weight": (16, 32),
        "model.layers.0.mlp.down_proj.weight": (32, 16),
        "model.layers.0.input_layernorm.weight": (32,),
        "model.layers.0.post_attention_layernorm.weight": (32,),
        "model.norm.weight": (32,),
        "lm_head.weight": (8, 32),
    }


@pytest.mark.extensive
def test_gradients_can_be_averaged_in_bf16(pool):
    losses, weights, learnt = values(pool, "compare(Tiny, 'fsdp:2,tp:2', reduce_dtype='bf16')")[0]
    assert 0 < losses < 0.02
    assert 0 < weights < 0.1
    assert learnt > 0.1


COMPUTES_IN_BF16 = """
import os
child = os.fork()
if not child:
    torch.set_num_threads(1)
    torch.ones(64, 64, dtype=torch.bfloat16) @ torch.ones(64, 64, dtype=torch.bfloat16)
    os._exit(0)
os.waitpid(child, 0)[1] == 0
"""
"""Some machines say that they have the instructions for it, and have not."""


@pytest.mark.extensive
def test_parameters_can_be_bf16(pool):
    if not all(values(pool, COMPUTES_IN_BF16)):
        pytest.skip("this machine ends processes that multiply in bfloat16 (SIGILL)")
    body = "train(spread(Tiny, %r, param_dtype=torch.bfloat16), sky.data_place(arranged(%r)), 5, False)"
    for axes in ("fsdp:2,tp:2", "tp:4"):
        first, *_, last = values(pool, body % (axes, axes))[0]
        assert first - last > 0.05


@pytest.mark.extensive
def test_what_ranks_hold_alike_stays_alike_also_with_dropout(pool):
    body = (
        "torch.manual_seed(dist.get_rank())\nmodel = sky.parallelize(Tiny(dropout=0.5), mesh=arranged('tp:4'))\n"
        "train(model, steps=4, foreach=False)\n"
        "[float(each.to_local().double().sum()) for n, each in model.named_parameters() if 'norm' in n or 'words' in n]"
    )
    first, *others = values(pool, body)
    assert len(first) == 3
    assert all(other == first for other in others)
    different = values(pool, "spread(Tiny, 'fsdp:2,tp:2')\ntorch.rand(1).item()")
    assert different[0] == different[1] != different[2] == different[3]


def test_a_plan_of_ones_own(pool):
    plan = "{'blocks.*.mlp.0': 'colwise', 'blocks.*.mlp.3': 'rowwise', 'head': 'gather', 'blocks.1.mlp.*': 'replicate'}"
    agree(pool, "Tiny", "fsdp:2,tp:2", f", plan={plan}")
    shapes = f"model = spread(Tiny, 'tp:4', plan={plan})\n{{n: tuple(p.to_local().shape) for n, p in model.named_parameters()}}"
    found = values(pool, shapes)[0]
    assert found["blocks.0.mlp.0.weight"] == (16, 16)
    assert found["blocks.0.mlp.3.weight"] == (16, 16)
    assert found["blocks.1.mlp.0.weight"] == (64, 16)
    assert found["blocks.0.attention.q.weight"] == (16, 16)
    assert found["head.weight"] == (8, 16)
    styles = (
        "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel\n"
        "compare(Tiny, 'tp:4', plan={'blocks.*.mlp.0': ColwiseParallel(), 'blocks.*.mlp.3': RowwiseParallel()})"
    )
    assert max(max(each[:2]) for each in values(pool, styles)) < 1e-4


@pytest.mark.parametrize(
    ("call", "says"),
    few(4, [
        ("spread(Tiny, 'tp:4', plan={'blocks.*.mpl.0': 'colwise'})", "did you mean 'blocks."),
        ("spread(Tiny, 'tp:4', plan={'head': 'columns'})", "not one of colwise, rowwise, gather, replicate"),
        ("spread(Tiny, 'tp:4', plan={'norm': 'colwise'})", "norm cannot be colwise with tp=4"),
        ("spread(tied, 'tp:4', plan={'head': 'gather'})", "head shares its weight"),
        ("spread(Tiny, 'rows:4')", "knows the axes dp, fsdp, tp, and the mesh has rows"),
        ("spread(Tiny, 'tp:4', reduce_dtype='half')", "'half' is not one of bf16"),
        ("sky.parallelize(spread(Tiny, 'fsdp:4'), mesh=arranged('fsdp:4'))", "spread over ranks already"),
        ("sky.parallelize(Tiny(width=8 * (1 + sky.is_head())), mesh=arranged('fsdp:4'))", "different models"),
        ("sky.parallelize([1, 2])", "takes a torch.nn.Module, a module of flax.nnx, or a pytree"),
        ("spread(Tiny, 'fsdp:4', plan={'blocks.*.mpl.0': 'colwise'})", "did you mean 'blocks."),
        ("spread(Tiny, 'fsdp:4', plan={'norm': 'colwise'})", "norm cannot be colwise"),
        ("sky.parallelize(Tiny(), mesh=3)", "mesh= takes a DeviceMesh of torch, not a int"),
    ]),
)  # fmt: skip
def test_what_cannot_be_done_is_said_on_every_rank(pool, call, says):
    body = (
        f"try:\n    {call}\nexcept (ValueError, TypeError) as error:\n    told = str(error)\ntold"
    )
    assert all(says in told for told in values(pool, body))


@pytest.mark.parametrize("axes", but_more("fsdp:2,tp:2", "tp:4", "fsdp:4"))
def test_a_parallelised_model_comes_home_whole(pool, axes):
    values(
        pool,
        f"model = spread(Tiny, {axes!r})\ntrain(model, sky.data_place(arranged({axes!r})), 2, False)",
    )
    _, state = values(pool, "model, sky.full_state(model)")[0]
    home = values(pool, "model")
    assert len(home) == 4
    for model in home:
        assert type(model).__name__ == "Tiny"
        assert type(model).__mro__[1].__name__ == "Module"
        found = model.state_dict()
        assert list(found) == list(state)
        assert all(found[name].equal(state[name]) for name in state)
        assert [name for name, _ in model.named_parameters()] == [n for n in state if n != "mask"]
        assert all(each.is_leaf and each.requires_grad for each in model.parameters())
    # And still one on the ranks.
    assert len(values(pool, f"train(model, sky.data_place(arranged({axes!r})), 2, False)")) == 4


def test_checkpoints_of_torch_have_it_whole_and_load_it(pool):
    body = """
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
model = spread(Tiny, "fsdp:2,tp:2")
train(model, sky.data_place(arranged("fsdp:2,tp:2")), 2, False)
state, own = get_model_state_dict(model, options=whole), sky.full_state(model)
other = spread(Tiny, "fsdp:1,tp:4")
set_model_state_dict(other, {k: v.clone() for k, v in state.items()},
                     options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
again = sky.full_state(other)
same = [list(state) == list(own) == list(again)] + [torch.equal(own[k], state[k]) and torch.equal(own[k], again[k]) for k in own]
before = {k: v.clone() for k, v in own.items()}
with torch.no_grad():
    for each in (*model.parameters(), *model.buffers()): each.zero_()
same + [torch.equal(own[k], before[k]) for k in own]  # it is of that moment
"""
    for each in values(pool, body):
        assert all(each)


def test_a_copy_is_refused_with_the_way_to_get_one(pool):
    body = (
        "import copy\nmodel = spread(Tiny, 'tp:4')\ntry:\n    copy.deepcopy(model)\n"
        "except TypeError as error:\n    told = str(error)\ntold"
    )
    assert "sky.full_state" in values(pool, body)[0]


def test_the_mesh_is_one_until_there_is_a_new_group(pool):
    body = "mesh = sky.mesh()\n(mesh is sky.mesh(), mesh.mesh_dim_names, tuple(mesh.shape), mesh.device_type)"
    assert values(pool, body) == [(True, ("fsdp", "tp"), (4, 1), "cpu")] * 4
    assert values(pool, "sky.data_place()") == [(rank, 4) for rank in range(4)]


def test_a_mesh_without_names_does_not_say_how_data_is_split():
    class Mesh:
        mesh_dim_names = None

    with pytest.raises(ValueError, match="have no names"):
        data_place(Mesh())


def test_without_a_pool_a_model_stays_as_it_is(monkeypatch):
    import torch

    monkeypatch.delenv("COMPUTE_POOL", raising=False)
    model = torch.nn.Linear(2, 3)
    assert parallelize(model) is model
    assert parallelize(model, {"": "colwise"}) is model
    assert type(model) is torch.nn.Linear
    with pytest.raises(ValueError, match="no layer is named 'no such layer'"):
        parallelize(model, {"no such layer": "colwise"})
    assert full_state(model)["weight"].equal(model.weight)
    assert data_place() == (0, 1)
    with pytest.raises(RuntimeError, match="there is no pool here"):
        mesh()
