"""`skyward-nb run train.yaml`: on two nodes, with SkyPilot's variables."""

from __future__ import annotations

from later import needs
from terminals import said, sky

TASK = """\
resources: {accelerators: "L4:2", disk_size: 100}
num_nodes: 2
envs: {SIZE: 3}
setup: echo setup of $SKYPILOT_SETUP_NODE_RANK
run: |
  echo node $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES with $SKYPILOT_NUM_GPUS_PER_NODE and $SIZE in $(basename $PWD)
  test -n "$SKYPILOT_TASK_ID" && test $(echo "$SKYPILOT_NODE_IPS" | wc -l) = 2 && python -c 'import json, os; json.loads(os.environ["SKYPILOT_CLUSTER_INFO"])'
  exit 3
"""


@needs("yaml")
def test_a_task_runs_on_each_node(script):
    script("", "code/x.py")
    name = script("workdir: code\n" + TASK, "train.yaml")
    ran = sky("run", "simulate", "on_error=wait", name, folder=script.folder)
    assert ran.code == 3, ran.stderr
    found = said(ran.stdout)
    assert found["setup of 0"] == [0] and found["setup of 1"] == [1]
    assert {f"node {node} of 2 with 2 and 3 in code" for node in (0, 1)} <= found.keys()
    assert "left out of train.yaml: resources.disk_size" in ran.stderr
