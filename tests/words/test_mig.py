"""Profiles of slices by GPU, and what is said where slices are lacking."""

import pytest

from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import OptionError
from skyward_nb.words.info import Peer, environment, place
from skyward_nb.words.mig import (
    MODELS,
    GpuCard,
    MigSlice,
    advice,
    is_called,
    models_of,
    own_slice,
    parse_mig,
    slices_of,
    slices_per_gpu,
    visible_cards,
)
from skyward_nb.words.spec import PoolSpec

A100 = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("accelerator", "profile", "count"),
    [
        ("A100", "3g.40gb", 2),
        ("A100", "2g.20gb", 3),
        ("A100", "1g.10gb", 7),
        ("A100-80GB", "1g.20gb", 4),
        ("A100-40GB", "1g.10gb", 4),
        ("A100", "3g.20gb", 2),
        ("A100-SXM4-40GB", "1g.5gb", 7),
        ("H100", "3g.40gb", 2),
        ("H100", "2g.20gb", 3),
        ("H100", "1g.10gb", 7),
        ("H100-94GB", "3g.47gb", 2),
        ("H100-NVL", "1g.12gb", 7),
        ("H100-96GB", "3g.48gb", 2),
        ("GH200", "7g.96gb", 1),
        ("A30", "1g.6gb", 4),
        ("A30", "2g.12gb+me", 1),
        ("H200", "3g.71gb", 2),
        ("H200", "1g.18gb+me", 1),
        ("B200", "2g.45gb", 3),
        ("nvidia-b200", "1g.23gb", 7),
    ],
)
def test_slices_per_gpu(accelerator, profile, count):
    assert slices_per_gpu(profile, Accelerator(accelerator)) == count


def test_no_profile_is_more_than_the_gpu():
    for model in MODELS:
        memory = int(model.memory.removesuffix("gb"))
        for profile, count in model.profiles.items():
            share = int(profile.split(".")[1].removesuffix("+me").removesuffix("gb"))
            assert count * share <= memory * 1.1, (model, profile)
            assert count * int(profile[0]) <= 7, (model, profile)


@pytest.mark.parametrize(
    ("accelerator", "profile", "says"),
    [
        ("A100-40GB", "3g.40gb", r"A100 40GB has 1g\.5gb \(7\).* 3g\.20gb \(2\)"),
        ("A100", "3g.71gb", r"A100 80GB has .*; A100 40GB has"),
        ("H200", "3g.40gb", r"3g\.71gb \(2\)"),
        ("L4", "3g.40gb", "A100, A30, H100, GH200, H200, B200"),
        ("A100-20GB", "3g.40gb", "are not known here"),
    ],
)
def test_an_unknown_profile_is_refused_with_those_there_are(accelerator, profile, says):
    with pytest.raises(OptionError, match=says):
        slices_per_gpu(profile, Accelerator(accelerator))


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("3g.40gb", "3g.40gb"),
        ("3G.40GB", "3g.40gb"),
        ("MIG-1g.10gb.me", "1g.10gb+me"),
        ("1g.10gb+me", "1g.10gb+me"),
        ("none", None),
    ],
)
def test_profiles_are_read(text, profile):
    assert parse_mig(text) == profile


@pytest.mark.parametrize("text", ["3g", "40gb", "half", "3g.40", "1c.3g.40gb"])
def test_what_is_no_profile_is_refused(text):
    with pytest.raises(OptionError, match=r"such as mig=3g\.40gb"):
        parse_mig(text)


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("NVIDIA A100-SXM4-80GB", ["A100 80GB"]),
        ("NVIDIA A100 80GB PCIe", ["A100 80GB"]),
        ("A100-SXM4-40GB", ["A100 40GB"]),
        ("NVIDIA H100 80GB HBM3", ["H100 80GB"]),
        ("NVIDIA H100 NVL", ["H100 94GB"]),
        ("NVIDIA GH200 480GB", ["GH200 96GB"]),
        ("NVIDIA GH200 144G HBM3e", []),
        ("NVIDIA H200", ["H200 141GB"]),
        ("NVIDIA H200 NVL", ["H200 141GB"]),
        ("Tesla T4", []),
    ],
)
def test_models_by_the_names_drivers_tell(name, models):
    assert [str(model) for model in models_of(name)] == models


def test_a_gpu_is_called_by_part_of_its_name_or_by_its_memory():
    assert is_called(A100, "A100")
    assert is_called(A100, "a100-80gb")
    assert is_called("NVIDIA H100 NVL", "H100-94GB")
    assert not is_called(A100, "A100-40GB")
    assert not is_called("NVIDIA H100 80GB HBM3", "A100")


def test_ranks_of_a_pool_are_its_slices():
    spec = PoolSpec(accelerator=Accelerator("A100", 2), mig="2g.20gb", nodes=2)
    assert (spec.slots, spec.devices, spec.world_size) == (6, 6, 12)
    assert PoolSpec(accelerator=Accelerator("A100"), mig="1g.10gb", simulate="yes").world_size == 7
    assert "A100:2 cut into 2g.20gb" in str(spec)


def test_accelerators_of_a_node_are_the_slices_its_ranks_have():
    spec = PoolSpec(accelerator=Accelerator("A100", 2), mig="2g.20gb", ranks_per_node=5)
    infos = place(spec, (Peer(0, "127.0.0.1"),), 1, "job", 1)
    assert {info.accelerators for info in infos} == {5}
    assert environment(infos[4])["SKYPILOT_NUM_GPUS_PER_NODE"] == "5"
    assert infos[0].accelerator == "A100"


def card(index, *profiles, mig=True, name=A100):
    slices = tuple(MigSlice(each, f"MIG-{index}{at}") for at, each in enumerate(profiles))
    return GpuCard(index, name, f"GPU-{index}abc", mig, slices)


MACHINE = (card(0, "3g.40gb", "3g.40gb"), card(1, "1g.10gb", "3g.40gb"), card(2, mig=False))


@pytest.mark.parametrize(
    ("visible", "slices"),
    [
        (None, ["MIG-00", "MIG-01", "MIG-11"]),
        ("1", ["MIG-11"]),
        ("GPU-0a", ["MIG-00", "MIG-01"]),
        ("MIG-01, MIG-11", ["MIG-01", "MIG-11"]),
        ("MIG-10", []),
        ("", []),
    ],
)
def test_slices_that_are_visible(visible, slices):
    assert list(slices_of(visible_cards(MACHINE, visible), "3g.40gb")) == slices


def test_advice_where_mig_is_off():
    assert advice((card(0, mig=False),), "3g.40gb", 2).splitlines() == [
        "2 slices 3g.40gb are needed, and there are 0:",
        f"  GPU 0 ({A100}) has MIG off",
        "To cut them, type",
        "  sudo nvidia-smi -i 0 -mig 1",
        "  sudo nvidia-smi mig -i 0 -cgi 3g.40gb,3g.40gb -C",
        "No process may use the GPU meanwhile. If the first command says that the mode is pending, "
        "reset the GPU, or restart the machine, first: sudo nvidia-smi --gpu-reset -i 0",
    ]


def test_advice_where_a_gpu_is_cut_otherwise():
    said = advice((card(1, "1g.10gb", "1g.10gb", "3g.40gb"),), "3g.40gb", 2)
    assert "GPU 1 (NVIDIA A100-SXM4-80GB) is cut into 2 × 1g.10gb, 1 × 3g.40gb" in said
    assert [line.strip() for line in said.splitlines() if "sudo" in line] == [
        "sudo nvidia-smi mig -i 1 -dci",
        "sudo nvidia-smi mig -i 1 -dgi",
        "sudo nvidia-smi mig -i 1 -cgi 3g.40gb,3g.40gb -C",
    ]
    assert "reset" not in said


def test_advice_asks_for_no_more_than_there_can_be():
    said = advice((card(0), card(1, mig=None), card(2, name="NVIDIA H200")), "3g.40gb", 5)
    assert "There can be 2 at most" in said
    assert "GPU 1 (NVIDIA A100-SXM4-80GB) has no MIG" in said
    assert [line for line in said.splitlines() if "sudo" in line] == [
        "  sudo nvidia-smi mig -i 0 -cgi 3g.40gb,3g.40gb -C"
    ]


def test_advice_takes_no_more_gpus_than_are_needed():
    said = advice((card(0, "3g.40gb"), card(1), card(2)), "3g.40gb", 3)
    assert [line for line in said.splitlines() if "sudo" in line] == [
        "  sudo nvidia-smi mig -i 0 -cgi 3g.40gb -C",
        "  sudo nvidia-smi mig -i 1 -cgi 3g.40gb -C",
    ]


@pytest.mark.parametrize(
    ("visible", "own"),
    [
        ("MIG-1", "MIG-1"),
        (" MIG-GPU-5d5ba0d6/8/0 ", "MIG-GPU-5d5ba0d6/8/0"),
        ("MIG-1,MIG-2", None),
        ("GPU-1", None),
        ("0", None),
        ("", None),
        (None, None),
    ],
)
def test_the_slice_that_a_process_has_for_itself(visible, own):
    assert own_slice(visible) == own
