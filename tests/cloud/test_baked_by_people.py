"""Images that a notebook and the command line bake, list and remove; and what they save."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from bootstrap.homes import index_of_pip
from cloud.baked_pools import baked, emptied, made, only_the_image
from cloud.notebooks import OPTIONS, START
from kernels import ready
from leaks import leaves_nothing
from pools import values

from skyward_nb.bootstrap import requirements
from skyward_nb.cli import main
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Step
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.image import Image
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.spec import PoolSpec

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cloud(shared_cloud, account):
    yield from emptied(shared_cloud)


def test_a_notebook_bakes_lists_and_removes(cloud):
    with ready(START) as running:
        assert "there is no pool 'default'" in running.run("%sky bake torch", 60).traceback
        assert running.run(f"%sky up {OPTIONS} nodes=1", 120).status == "ok"
        assert running.run("%%sky_remote\nx = 1", 60).status == "ok"
        ran = running.run("%sky bake torch", 90)
        assert ran.status == "ok", ran.traceback
        assert "pool default is down: 1 rank ended" in ran.stdout
        assert "image torch in us-east-1: ami-" in ran.stdout and "ready, 3 GB" in ran.stdout
        assert "image torch in us-east-1: ami-" in running.run("%sky bake", 60).stdout
        swept = running.run("%sky sweep", 60).stdout
        assert "image torch in us-east-1: ami-" in swept
        ran = running.run(f"%%sky_remote {OPTIONS} nodes=1 ami=torch\n40 + 2", 120)
        assert ran.status == "ok" and "42" in ran.result, ran.traceback
        ran = running.run("%sky bake torch", 60)
        assert "there is an image 'torch' in us-east-1" in ran.traceback
        assert running.run("%%sky_remote\n1", 60).status == "ok", "the pool stays"
        assert running.run("%sky down", 60).status == "ok"
        ran = running.run("%sky bake torch remove", 60)
        assert "removed: image torch in us-east-1, with its snapshots" in ran.stdout, ran.traceback
    cloud.nothing_left()


@pytest.mark.extensive
def test_the_command_bakes_lists_and_removes(cloud, capsys):
    with leaves_nothing():
        pool = made(keep=True)
        pool.leave()
        assert main(["bake", "torch"]) == 0
        said = capsys.readouterr().out
        assert "pool default is down" in said and "image torch in us-east-1: ami-" in said
        assert main(["bake", "--json"]) == 0
        (image,) = json.loads(capsys.readouterr().out)["images"]
        assert image["name"] == "torch" and image["state"] == "available"
        assert main(["sweep", "--json"]) == 0
        assert "image torch" in json.loads(capsys.readouterr().out)["baked"][0]
        assert main(["bake", "torch", "remove"]) == 0
        assert main(["bake", "torch", "remove"]) == 2
        assert "there is no image 'torch'" in capsys.readouterr().err
    cloud.nothing_left()


def _image_with(package: str) -> Image:
    """An image with a package; with torch, in the CPU build that tests are installed from. Skips without it."""
    if package != "torch":
        return Image(pip=["iniconfig<2", package], env=index_of_pip())
    wheels = Path(__file__).parents[2] / "build" / "wheels"
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    found = next(wheels.glob(f"torch-*-{tag}-*.whl"), None)
    if found is None:
        pytest.skip(f"no wheel of torch is in {wheels}")
    exactly = f"torch=={found.name.split('-')[1]}"
    env = index_of_pip() | {"UV_FIND_LINKS": str(wheels)}
    return Image(pip=["iniconfig<2", exactly], env=env)


@pytest.mark.extensive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_nothing_is_installed_on_a_machine_of_it(
    cloud, monkeypatch, tmp_path, record_property, package
):
    monkeypatch.setattr(requirements, "BESIDE", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "client"))
    image = _image_with(package)
    took: dict[str, float] = {}
    said: dict[str, list[str]] = {}

    def ran(name, ami=None):
        """A pool up, and where a first cell found what it imported."""
        told: list[object] = []
        began = time.monotonic()
        aws = AWSAccess(region="us-east-1", instance_type="c6i.large", ami=ami)
        spec = PoolSpec(provider="aws", aws=aws, nodes=1, image=image, grace=20.0)
        pool = Pool(spec, PROVIDERS["aws"](), lambda _: None)
        try:
            pool.start(told.append)
            found = values(pool, f"import iniconfig, {package}\n{package}.__file__")
        except HostNotReady as fault:
            pytest.skip(f"no index of packages is reached: {fault}")
        took[name] = time.monotonic() - began
        said[name] = [s.text for s in told if isinstance(s, Step) and s.name == "environment"]
        return pool, found

    pool, first = ran("a fresh machine")
    baked(pool)
    pool, again = ran("a machine of the image", "torch")
    assert again == first
    assert said["a machine of the image"] == ["as before"], said
    assert len(said["a fresh machine"]) > 1
    pool.close()
    for name, seconds in took.items():
        record_property(name, f"{seconds:.2f} s")
        print(f"start to the first cell on {name}: {seconds:.2f} s")
    only_the_image(cloud)
