"""A task file on a pool that is there: what differs is said."""

from __future__ import annotations

import pytest
from msgspec import UNSET

pytest.importorskip("yaml")


from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import parse
from skyward_nb.reports.task_script import TaskScript
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.volume import Volume
from skyward_nb.workdir import scan as scanning


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("run: echo", {}, []),
        ("num_nodes: 4\nrun: echo", {"nodes": 4}, []),
        ("num_nodes: 4\nrun: echo", {"nodes": 1}, ["asks for nodes=4, and pool p has 1"]),
        (
            "resources: {accelerators: 'A100:8'}\nrun: echo",
            {},
            ["asks for accelerator=A100:8, and pool p has none"],
        ),
        ("resources: {accelerators: 'A100:8'}\nrun: echo", {"accelerator": "A100:8"}, []),
        (
            "resources: {any_of: [{accelerators: 'A100:8'}, {accelerators: 'H100:8'}]}\nrun: echo",
            {"accelerator": "H100:8"},
            [],
        ),
    ],
)
def test_a_pool_with_less_than_a_file_asks_for_is_told(tmp_path, text, options, told):
    (tmp_path / "t.yaml").write_text(text)
    if "accelerator" in options:
        options = {"accelerator": parse(f"accelerator={options['accelerator']}").pool.accelerator}
    script = TaskScript.of_file([str(tmp_path / "t.yaml")])
    assert [*script.notes(PoolSpec(name="p", **options))] == [f"t.yaml {each}" for each in told]


def test_large_and_linked_mounts_are_sent_where_that_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(scanning, "MOST_BYTES", 3)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_text("large")
    (tmp_path / "link").symlink_to("data/large")
    mounts = f"file_mounts: {{/d: {tmp_path}/data, /f: {tmp_path}/link}}"
    (tmp_path / "t.yaml").write_text(f"run: echo\n{mounts}")
    script = TaskScript.of_file([str(tmp_path / "t.yaml")])
    spec = PoolSpec(name="p", provider="ssh")

    def sent(**options):
        found = script.beside(spec, CellOptions(**options))
        return [
            [*scanning.scan(each.root, takes_all=each.takes_all, only=each.only).entries]
            for each in found
        ]

    with pytest.raises(OptionError, match="folder=all sends all of it"):
        sent()
    assert sent(folder="all") == [[b"large"], [b"large"]]
    mounted = {target: each.only for target, each in script._mounted(spec)}
    assert mounted == {"/d": "", "/f": "large"}, "the link on nodes leads to the name it has there"


def test_a_bucket_is_a_volume_of_rented_machines_and_is_named_elsewhere(tmp_path):
    (tmp_path / "t.yaml").write_text("run: echo\nfile_mounts: {/data: s3://bucket/iris}")
    script = TaskScript.of_file([str(tmp_path / "t.yaml")])
    script.check()
    rented = script.for_new_pool(PoolOptions(provider="aws"))
    assert rented.volumes == (Volume(bucket="bucket", mount="/data", prefix="iris"),)
    assert [*script.notes(PoolSpec(name="p", volumes=rented.volumes))] == []
    assert script.for_new_pool(PoolOptions(provider="ssh")).volumes is UNSET
    assert [*script.notes(PoolSpec(name="p", provider="ssh"))] == [
        "left out of t.yaml: file_mounts./data (S3 is for rented machines)"
    ]
