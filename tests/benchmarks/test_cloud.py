"""What renting machines costs this side, with the API of AWS played by a server here: `make bench`, as root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from cloud.conftest import why_no_cloud
from cloud.sky import Cloud
from cluster.box import why_no_boxes

_WHY_NOT = why_no_cloud() or why_no_boxes()
pytestmark = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
SCRIPT = Path(__file__).with_name("launching.py")


def rented(cloud: Cloud, own: Path, nodes: int) -> tuple[dict[str, float], int]:
    """What it took to rent so many machines, in seconds, and how many calls of AWS until they were gone."""
    before = len(cloud.calls)
    env = {**os.environ, **cloud.env(own)}
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(nodes)], env=env, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    cloud.nothing_left()
    return json.loads(ended.stdout.splitlines()[-1]), len(cloud.calls) - before


def test_launch(tmp_path, figure):
    cloud = Cloud(tmp_path / "cloud")
    try:
        cloud.reset()
        one = [rented(cloud, tmp_path / "one", 1) for _ in range(3)]
        eight = [rented(cloud, tmp_path / "eight", 8) for _ in range(3)]
    finally:
        cloud.close()
    cpu = {name: median(each[name] for each, _ in eight) for name in eight[0][0]}
    figure(
        "CPU of this side to launch 8 nodes, from a fresh Python",
        f"{cpu['launch']:.2f} s; until all can be logged in to {cpu['boot']:.2f} s; "
        f"until the pool is ready {cpu['ready']:.2f} s (it took {cpu['took']:.1f} s)",
        "2 s",
        cpu["launch"] <= 2,
    )
    # The first start of each asks what there is, and for how much; that is kept for later ones.
    alone, all_ = one[-1][1], eight[-1][1]
    figure(
        "calls of AWS from launch to end, 8 nodes beside 1",
        f"{all_}, {alone}",
        "as many",
        all_ <= alone,
    )
