"""A pool in a container by the real pyxis and enroot, where `.ci/pyxis` has built them of their sources."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from pools import values
from slurm.town import lacks, town
from waiting import until

from skyward_nb.words.errors import StartError

BUILT = Path(__file__).parents[2] / "build" / "pyxis"
PLUGIN = BUILT / "lib" / "spank_pyxis.so"
_OWN = ("etc", "dev", "proc", "sys", "tmp", "run", "var", "root", "home")
pytestmark = [
    pytest.mark.extensive,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd loads the plugin as root alone"),
    pytest.mark.skipif(not PLUGIN.exists(), reason="there is no pyxis here: .ci/pyxis builds it"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One whose srun knows pyxis; each container has this machine's programs, as folders that enroot mounts."""
    if lack := lacks():
        pytest.skip(lack)
    folder = tmp_path_factory.mktemp("pyxis")
    for each in ("run", "data", "bin"):
        (folder / each).mkdir()
    shutil.copytree(BUILT / "etc", folder / "etc")
    mounts = [
        f"/{each.name} /{each.name} none x-create=dir,rbind,ro"
        for each in Path("/").iterdir()
        if each.is_dir() and not each.is_symlink() and each.name not in _OWN
    ]
    (folder / "etc/mounts.d/90-here.fstab").write_text("\n".join(mounts) + "\n")
    places = f"export ENROOT_SYSCONF_PATH={folder}/etc ENROOT_DATA_PATH={folder}/data"
    enroot = folder / "bin" / "enroot"
    enroot.write_text(f'#!/bin/sh\n{places} PATH={BUILT}/bin:$PATH\nexec {BUILT}/bin/enroot "$@"\n')
    enroot.chmod(0o755)
    plugins = folder / "plugstack.conf"
    plugins.write_text(f"required {PLUGIN} runtime_path={folder}/run\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SKYWARD_CACHE_DIR", str(folder / "cache"))
        with town(folder / "slurm", path=str(folder / "bin"), PlugStackConfig=plugins) as made:
            for name, value in made.environ.items():
                patched.setenv(name, value)
            made.containers = folder / "data"
            yield made


@pytest.fixture
def access(access, cluster):
    """A login whose jobs find enroot, too."""

    def made(**options):
        there = access(**options)
        return replace(
            there, before=(*there.before, f"export PATH={cluster.containers.parent}/bin:$PATH")
        )

    return made


@pytest.fixture
def image(tmp_path):
    """A file of an image that has folders, links and a mark alone."""
    root = tmp_path / "root"
    for each in Path("/").iterdir():
        if each.is_symlink():
            (root / each.name).parent.mkdir(parents=True, exist_ok=True)
            (root / each.name).symlink_to(each.readlink())
        elif each.is_dir():
            (root / each.name).mkdir(parents=True)
    (root / "etc" / "of-the-image").write_text("yes")
    for each in ("passwd", "group"):
        shutil.copy(f"/etc/{each}", root / "etc")
    made = tmp_path / "image.sqsh"
    subprocess.run(["mksquashfs", root, made, "-quiet", "-no-progress"], check=True)
    return made


_WHERE = """
import os
open("/etc/of-the-image").read(), os.environ["SLURMD_NODENAME"], os.environ["SLURM_JOB_ID"]
"""


def test_all_of_a_pool_is_in_its_container_which_goes_with_the_job(slurm, cluster, image):
    """On one node: two on one machine would share the container's name."""
    pool = slurm(nodes=1, ranks_per_node=2, job={"container": str(image)})
    pool.start(lambda _: None)
    job = pool.context.generations.machines[0].allocation.record.job
    assert values(pool, _WHERE) == [("yes", "c1", job)] * 2
    large = os.urandom(3 << 20)
    assert values(pool, "big[::-1]", {"big": large}) == [large[::-1]] * 2
    assert [each.name for each in cluster.containers.iterdir()] == [f"pyxis_skyward-{pool.pool_id}"]
    pool.close()
    assert cluster.is_empty()
    assert not [*cluster.containers.iterdir()]


@pytest.mark.parametrize("is_there", [False, True], ids=["its own", "that is there"])
def test_the_container_goes_with_a_job_that_is_cancelled(slurm, cluster, image, is_there):
    options = {"container": str(image)}
    if is_there:
        mine = cluster.say("sbatch", "--parsable", "-N1", "--exclusive", "--wrap", "sleep 600")
        until(lambda: cluster.queue() == [f"{mine} RUNNING"])
        options["job"] = mine
    pool = slurm(nodes=1, job=options)
    pool.start(lambda _: None)
    assert values(pool, _WHERE)[0][0] == "yes"
    cluster.say("scancel", pool.context.generations.machines[0].allocation.record.job)
    until(cluster.is_empty)
    assert not [*cluster.containers.iterdir()]


def test_the_container_of_a_pool_in_a_job_that_is_there_goes_with_the_pool(slurm, cluster, image):
    mine = cluster.say("sbatch", "--parsable", "-N1", "--exclusive", "--wrap", "sleep 600")
    until(lambda: cluster.queue() == [f"{mine} RUNNING"])
    pool = slurm(nodes=1, job={"job": mine, "container": str(image)})
    pool.start(lambda _: None)
    assert values(pool, _WHERE) == [("yes", "c1", mine)]
    pool.close()
    until(lambda: not [*cluster.containers.iterdir()])
    assert cluster.queue() == [f"{mine} RUNNING"]
    cluster.say("scancel", mine)


def test_an_image_that_is_not_there_is_said(slurm, cluster, tmp_path):
    with pytest.raises(StartError, match=r"(?s)batch script failed.*none\.sqsh"):
        slurm(nodes=1, job={"container": str(tmp_path / "none.sqsh")}).start(lambda _: None)
    assert cluster.is_empty()
