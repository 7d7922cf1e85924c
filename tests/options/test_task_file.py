"""SkyPilot's task files: what is read, what is left out, and mistakes with their lines."""

from __future__ import annotations

import pytest
from later import needs

from skyward_nb.options.task_file import read_task
from skyward_nb.words.errors import OptionError

pytestmark = needs("yaml")
TEXT = """\
name: minGPT-ddp
resources:
  cpus: 4+
  accelerators: L4:2
  disk_size: 100
num_nodes: 2
file_mounts:
  /data: ./data
envs:
  SIZE: 3
secrets:
  TOKEN: null
setup: |
  pip list
run: |
  echo $SIZE
"""


def read(text, words="", **environ):
    return read_task(text, "train.yaml", words.split(), environ)


def test_a_task_and_the_options_after_it():
    task = read(TEXT, TOKEN="of this process")
    assert task.pool == {"cpus": "4+", "accelerator": "L4:2", "nodes": "2"}
    assert (task.name, task.setup, task.run) == ("minGPT-ddp", "pip list\n", "echo $SIZE\n")
    assert task.env == {"SIZE": "3", "TOKEN": "of this process"} and "process" not in repr(task)
    assert task.left_out == ("resources.disk_size",)
    assert task.mounts == (("/data", "./data"),)
    task = read(
        TEXT, "--num-nodes 4 --gpus L4:4 --cpus 8+ --env SIZE=5 --secret TOKEN=t --use-spot"
    )
    assert task.pool == {"cpus": "8+", "accelerator": "L4:4", "nodes": "4", "spot": "yes"}
    assert task.env == {"SIZE": "5", "TOKEN": "t"}


def test_each_way_to_meet_resources_is_a_pool():
    text = "run: a\nnum_nodes: 2\nresources: {any_of: [{accelerators: [L4, T4]}, {infra: aws, cpus: 8}]}"
    task = read(text, "--cpus 4")
    assert [task.pool, *task.others] == [
        {"accelerator": "L4", "cpus": "4", "nodes": "2"},
        {"accelerator": "T4", "cpus": "4", "nodes": "2"},
        {"provider": "aws", "cpus": "4", "nodes": "2"},
    ]
    assert read(text, "--gpus L4 --infra local --cpus 2").others == ()


def test_mounts_of_other_stores_are_left_out():
    mounts = (
        "{/a: s3://bucket/x, /b: gs://bucket, /c: {name: mine, mode: MOUNT}, /d: {source: ./d}}"
    )
    task = read(f"run: a\nfile_mounts: {mounts}")
    assert task.mounts == (("/a", "s3://bucket/x"), ("/d", "./d"))
    assert task.left_out == ("file_mounts./b (gs://)", "file_mounts./c")


@pytest.mark.parametrize(
    ("resources", "pool", "left"),
    [
        ("{accelerators: {A100: 8}}", {"accelerator": "A100:8"}, ()),
        ("{infra: aws/us-east-1/us-east-1a, use_spot: true}",
         {"provider": "aws", "region": "us-east-1", "zones": "us-east-1a", "spot": "yes"}, ()),
        ("{infra: gcp/us-central1, use_spot: false}",
         {"provider": "sky", "infra": "gcp/us-central1", "spot": "no"}, ()),
        ("{memory: 32+, any_of: [{accelerators: L4}, {accelerators: T4}]}",
         {"memory": "32+", "accelerator": "L4"}, ()),
        ("{accelerators: [L4, T4], ports: 80}",
         {"accelerator": "L4"}, ("resources.ports",)),
    ],
)  # fmt: skip
def test_resources(resources, pool, left):
    task = read(f"run: a\nresources: {resources}")
    assert (task.pool, task.left_out) == (pool, left)


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        (
            "name: x\nresources:\n\tcpus: 4\n",
            "",
            r"train.yaml, line 3: .*indent with spaces, not tabs",
        ),
        ("run: a\nnum_node: 2\n", "", "line 2: a task has no 'num_node'; did you mean num_nodes"),
        ("run: a\nresources:\n  cpus: many\n", "", "line 3: cpus=many"),
        ("run: a\nresources:\n  accelerators: 'L4:x'\n", "", "line 3: "),
        (
            "run: a\nresources:\n  accelerators: 'H1000:8'\n",
            "",
            "there is no H1000 .* did you mean H100",
        ),
        ("run: a\nresources:\n  infra: --gcp\n", "", "line 3: infra: .*of yours are hosts="),
        ("run: a\nnum_nodes: 0\n", "", "line 2: nodes"),
        ("run: [a]\n", "", "line 1: run is text"),
        ("- a\n", "", "line 1: a task file is a mapping"),
        ("run: a\nenvs:\n  KEY:\n", "", "line 3: KEY has no value: --env KEY="),
        ("run: a\n", "--gpus L4:x", "--gpus=L4:x"),
        ("run: a\n", "--num-nods 3", "did you mean num-nodes"),
        ("run: a\n", "--cpus", "--cpus needs a value"),
    ],
)
def test_mistakes_have_their_line(text, words, says):
    with pytest.raises(OptionError, match=says):
        read(text, words)
