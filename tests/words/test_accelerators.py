"""Accelerators: one name for each model, however it is written, and words for what is none."""

import re

import pytest

from skyward_nb.words.accelerators import Accelerator, other_ways, parse_accelerator
from skyward_nb.words.catalogue import KINDS, canonical, kind_of
from skyward_nb.words.errors import OptionError
from skyward_nb.words.mig import MODELS, is_called, models_of


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("A100", "A100", 1),
        ("a100:8", "A100", 8),
        ("A100:2.0", "A100", 2),
        ("NVIDIA.A100", "A100", 1),
        ("nvidia-a100-80g:4", "A100-80GB", 4),
        ("A100_80GB", "A100-80GB", 1),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB", 1),
        ("A100-SXM4-80GB", "A100-SXM4-80GB", 1),
        ("h100-nvl", "H100-NVL", 1),
        ("GH200-480GB", "GH200-480GB", 1),
        ("Tesla-V100-SXM2-32GB", "V100-SXM2-32GB", 1),
        ("4090", "RTX-4090", 1),
        ("NVIDIA GeForce RTX 3080 Ti:2", "RTX-3080-Ti", 2),
        ("rtx4070", "RTX-4070", 1),
        ("Quadro-RTX-6000", "RTX-6000", 1),
        ("RTX-6000-Ada", "RTX-6000-Ada", 1),
        ("A6000", "RTX-A6000", 1),
        ("mi300x:8", "MI300X", 8),
        ("trn1:16", "Trainium", 16),
        ("tpuv5e:4", "TPUv5e", 4),
        ("NVIDIA-B400", "B400", 1),
        ("MyChip", "MyChip", 1),
        ("my-chip_2", "my-chip-2", 1),
    ],
)
def test_one_name_for_each_model(text, name, count):
    assert parse_accelerator(text) == Accelerator(name, count)
    assert parse_accelerator(name if text != "NVIDIA-B400" else text).name == name


def test_none_is_none():
    assert parse_accelerator("none") is None
    assert parse_accelerator("None") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("T4:0.5", r"ranks_per_node=2 with framework=torch backend=gloo has 2 ranks share it$"),
        ("A100:0.5", "mig=3g.40gb cuts it into slices, one for each rank; or .*ranks_per_node=2"),
        ("A100-40GB:0.3", "mig=2g.10gb .* 3 ranks share it"),
        ("H100:0.14", "mig=1g.10gb .* 7 ranks"),
        ("A100:0.01", "accelerator=A100 ranks_per_node=100"),
    ],
)
def test_a_part_of_one_has_other_ways_where_none_is_rented(text, says):
    asked = parse_accelerator(text)
    assert (asked.count, str(asked)) == (1, text)
    assert re.search(says, other_ways(asked))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A10O", "no A10O among the models known here; did you mean A10"),
        ("RTX-4909", "did you mean RTX-"),
        ("B400", "did you mean B[23]00 or B[23]00.* with its maker: NVIDIA-B400"),
        ("MI400X", "did you mean MI300X.* AMD-MI400X"),
        ("A100-60GB", "A100 has 40 or 64 or 80 GB of memory"),
        ("A100-40GB-80GB", "A100 has 40 or 64 or 80"),
        ("A100:1.5", "a whole count of 1 or more"),
        ("A100:0", "a whole count of 1 or more"),
        ("A100:", "write a name"),
        ("A100:x", "write a name"),
        ("A100:8:8", "write a name"),
        ("123", "write a name"),
        ("", "write a name"),
        ("-A100", "write a name"),
        ("A100;B200", "write a name"),
    ],
)
def test_what_names_none_is_told(text, says):
    with pytest.raises(OptionError, match=says):
        parse_accelerator(text)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_model_has_its_names_to_itself(kind):
    assert kind.memory
    for word in (
        kind.name,
        *kind.aliases,
        f"{kind.maker}.{kind.name}",
        kind.name.replace("-", " "),
    ):
        assert kind_of(word) == kind
        assert canonical(word) == kind.name
    for memory in kind.memory:
        assert canonical(f"{kind.name}-{memory}GB") == f"{kind.name}-{memory}GB"


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_what_mig_can_cut_is_in_the_catalogue(model):
    name = canonical(f"{model.family}-{model.memory}")
    assert model in models_of(name)


@pytest.mark.parametrize(
    "card",
    [
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA RTX A6000",
        "Tesla T4",
    ],
)
def test_a_card_is_called_by_the_name_its_driver_tells(card):
    assert is_called(card, parse_accelerator(card).name)
