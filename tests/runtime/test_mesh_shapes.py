"""Where the shape of a mesh is read from: lists, texts, configurations and arguments."""

from __future__ import annotations

import pytest
from later import needs

from skyward_nb.runtime.instance import instance_info
from skyward_nb.runtime.mesh_shapes import read_shape

TWO = (("fsdp", 2), ("tp", 2))
KEY = "model.mesh_shape"
VALUE = '[[2,2],["fsdp","tp"]]'


@pytest.mark.parametrize(
    "shape", ["fsdp:2,tp:2", VALUE, [[2, 2], ["fsdp", "tp"]], ((2, 2), ("fsdp", "tp"))]
)
def test_shapes(shape):
    assert read_shape(shape, None, []) == TWO


@pytest.mark.parametrize(
    "words",
    [
        [f"{KEY}={VALUE}"],
        [f"+{KEY}={VALUE}"],
        [f"++{KEY}=fsdp:2,tp:2", "other=1"],
        [f"--{KEY}={VALUE}"],
        [f"--{KEY}", VALUE],
        [f"{KEY}=[[4,1],[fsdp,tp]]", f"{KEY}=[[2,2],[fsdp,tp]]"],
    ],
)
def test_a_key_of_the_arguments_of_which_the_last_counts(words):
    assert read_shape(KEY, None, ["main.py", *words]) == TWO


def test_a_key_of_a_configuration():
    config = {"model": {"mesh_shape": [[2, 2], ["fsdp", "tp"]], "text": VALUE}}
    assert read_shape(KEY, config, [f"{KEY}=[[4,1],[a,b]]"]) == TWO
    assert read_shape("model.text", config, []) == TWO


@needs("omegaconf")
def test_a_key_of_an_omegaconf():
    import omegaconf

    config = {"model": {"mesh_shape": [[2, 2], ["fsdp", "tp"]]}}
    assert read_shape(KEY, omegaconf.OmegaConf.create(config), []) == TWO


@pytest.mark.parametrize(
    ("shape", "config", "says"),
    [
        (KEY, None, "no argument of the script is model.mesh_shape="),
        (KEY, {"model": {}}, "model has no mesh_shape"),
        (KEY, {}, "config has no model"),
        (
            KEY,
            {"model": {"mesh_shape": [[2], ["fsdp", "tp"]]}},
            "model.mesh_shape: .*write its axes",
        ),
        (KEY, {"model": {"mesh_shape": 4}}, "model.mesh_shape: 4: write its axes"),
        ([2, 2], None, "write its axes"),
        ("fsdp:0", None, "size of 1 or more"),
    ],
)
def test_what_is_no_shape_is_said_with_its_key(shape, config, says):
    with pytest.raises(ValueError, match=says):
        read_shape(shape, config, ["main.py", "other=1"])


def test_a_worker_of_torchrun_knows_its_place(monkeypatch):
    monkeypatch.delenv("COMPUTE_POOL", raising=False)
    for name, value in {
        "RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 1,
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": 8008, "TORCHELASTIC_RUN_ID": "job",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    info = instance_info()
    assert (info.rank, info.world_size, info.node, info.total_nodes) == (3, 4, 1, 2)
    assert (info.local_rank, info.head_addr, info.head_port) == (1, "10.0.0.1", 8008)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert instance_info().world_size == 1
