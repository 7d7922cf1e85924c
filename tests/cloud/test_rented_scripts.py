"""Plain Python that rents: a script brings machines up, calls functions on them, and leaves none."""

from __future__ import annotations

import json

import pytest
from scripts import run_text

from skyward_nb.providers.aws import rental_records

pytestmark = pytest.mark.timeout(300)
_RENTS = """
import json, os, socket, sys
import skyward_nb as sky

@sky.function
def where(word):
    return word, os.getuid(), socket.gethostname()

rented = sky.AWS(region="us-east-1", instance_type="c6i.large")
image = sky.Image(interpreter=sys.executable)
with sky.Compute(provider=rented, nodes={nodes}, image=image, max_cost=5, quiet=True) as pool:
    print(json.dumps(where("hello") @ pool))
    {then}
print("left")
"""


@pytest.mark.extensive
def test_a_script_rents_machines_and_leaves_none(cloud, tmp_path):
    ran = run_text(_RENTS.format(nodes=2, then="pass"), tmp_path, timeout=200)
    assert ran.returncode == 0, ran.stderr
    told, last = ran.stdout.splitlines()
    assert last == "left"
    found = json.loads(told)
    assert [each[:2] for each in found] == [["hello", 1000]] * 2
    assert len({each[2] for each in found}) == 2
    assert cloud.actions().count("RunInstances") == 1
    cloud.nothing_left()
    assert rental_records.entries() == []


def test_a_script_that_fails_leaves_none(cloud, tmp_path):
    text = _RENTS.format(nodes=1, then="raise LookupError('at home')")
    ran = run_text(text, tmp_path, timeout=200)
    assert ran.returncode == 1 and "LookupError: at home" in ran.stderr
    (found,) = json.loads(ran.stdout)
    assert found[:2] == ["hello", 1000]
    assert cloud.actions().count("RunInstances") == 1
    cloud.nothing_left()
    assert rental_records.entries() == []
