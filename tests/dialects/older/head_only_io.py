"""Head-only I/O in the older dialect: `is_head` decides who writes, the others return nothing."""

import json
import tempfile
from pathlib import Path

import skyward_nb as sky


@sky.compute
def report(folder):
    info = sky.instance_info()
    if not info.is_head:
        return None
    path = Path(folder) / "report.json"
    path.write_text(json.dumps({"nodes": info.total_nodes, "by": info.node}))
    return path.name


with tempfile.TemporaryDirectory() as folder, sky.ComputePool(nodes=3) as pool:
    print(f"returned: {report(folder) @ pool}")
    print(f"written: {json.loads((Path(folder) / 'report.json').read_text())}")
