"""Images of pools' machines, and pools that start from them, on machines that one can log in to."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile

import pytest
from cloud.baked_pools import baked, emptied, made, only_the_image
from leaks import leaves_nothing
from pools import values
from waiting import until

from skyward_nb.pool import registry
from skyward_nb.providers.aws import image_records, rental_records, sweep
from skyward_nb.providers.aws.image_contents import PUT_BACK, TAKE_OUT
from skyward_nb.reports import baked_images
from skyward_nb.words.errors import PoolError
from skyward_nb.words.spec import PoolSpec

pytestmark = pytest.mark.timeout(300)
HOME = "/home/ubuntu"
KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
SECRETS = {
    f"{HOME}/.aws/credentials": "aws_secret_access_key = s3cr3t",
    f"{HOME}/.cache/huggingface/token": "s3cr3t",
    f"{HOME}/dotfiles/history": "export TOKEN=s3cr3t",
    f"{HOME}/.config/pip/pip.conf": "index-url = https://me:s3cr3t@example.org",
    f"{HOME}/.local/share/fish/fish_history": "- cmd: export TOKEN=s3cr3t",
    f"{HOME}/dotfiles/netrc": "password s3cr3t",
    f"{HOME}/.ssh/id_ed25519": "s3cr3t",
    f"{HOME}/dotfiles/azure/profile": "s3cr3t",
    f"{HOME}/private/token": "s3cr3t",
    f"{HOME}/private/sso/more/token": "s3cr3t",
    f"{HOME}/.cache/skyward_nb/values-00000000/pool/one": "s3cr3t",
    "/tmp/skyward_nb-1000/another/agent.log": "s3cr3t",
}
LINKS = {
    f"{HOME}/.bash_history": "dotfiles/history",
    f"{HOME}/.netrc": "dotfiles/netrc",
    f"{HOME}/.aws/linked": "../dotfiles/netrc",
    f"{HOME}/.azure": "dotfiles/azure",
    f"{HOME}/dotfiles/azure/token": "../../private/token",
    f"{HOME}/.aws/sso": "../private/sso",
    f"{HOME}/private/sso/home": HOME,
    f"{HOME}/private/sso/homes": "/home",
    f"{HOME}/private/sso/again": "..",
    f"{HOME}/private/sso/gone": "nowhere",
}
SHARED = base64.b64encode(
    b"""#!/bin/sh
case "$1 $*" in "-f "*/.kube) echo nfs; exit ;; esac
exec /usr/bin/stat "$@"
"""
).decode()
"""A `stat` that takes `.kube` for a folder of NFS."""
NO_TAR = base64.b64encode(
    b"""#!/bin/sh
case "$*" in "-C / -x"*) echo "no disk takes it" >&2; exit 2 ;; esac
exec /usr/bin/tar "$@"
"""
).decode()
"""A `tar` that puts nothing back."""


@pytest.fixture
def cloud(shared_cloud, account):
    yield from emptied(shared_cloud)


def files(disk):
    """The files of a disk, and what is in them."""
    with tarfile.open(fileobj=io.BytesIO(disk)) as archive:
        return {
            f"/{each.name}": archive.extractfile(each).read() if each.isfile() else b""
            for each in archive.getmembers()
        }


def test_a_machine_of_it_has_the_environment_and_nothing_secret_and_lives(cloud):
    with leaves_nothing():
        pool = made(nodes=2)
        head, other = cloud.machines
        record = rental_records.find(pool.pool_id).record
        if head.instance != record.machines[0].instance:
            head, other = other, head
        for path, text in SECRETS.items():
            head.sh(f"mkdir -p $(dirname {path}) && echo '{text}' > {path}")
        for path, target in LINKS.items():
            head.sh(f"ln -s {target} {path}")
        head.sh(f"chown -R ubuntu {HOME}; mkdir -p {HOME}/.cache/skyward_nb/envs")
        head.sh(f"echo made > {HOME}/.cache/skyward_nb/envs/environment")
        before = head.file(KEY).read_text()
        image = baked(pool)
        said = pool.closing.kept
        assert said == f"image torch is {image.ami}, whose disks EC2 copies now"
        assert head.instance in image.source
        only_the_image(cloud)

        there = files(cloud.image_disk(image.ami))
        assert f"{HOME}/.cache/skyward_nb/envs/environment" in there
        assert not {path for path in there if "authorized_keys" in path or "ssh_host" in path}
        assert not {path for path in there if pool.pool_id in path}
        assert not {
            path for path, text in there.items() if b"s3cr3t" in text or b"PRIVATE KEY" in text
        }
        assert not {path for path in there if "deadman.service" in path}
        assert "/var/lib/skyward/boot" not in there and not there.get("/etc/machine-id")

        pool = made(ami="torch")
        (machine,) = cloud.machines
        (call,) = [each for each in cloud.calls if each.action == "RunInstances"][1:]
        assert call.parameters["ImageId"] == image.ami
        assert values(pool, "import os\nos.environ['RANK']") == ["0"]
        assert machine.file(f"{HOME}/.cache/skyward_nb/envs/environment").read_text() == "made\n"
        assert len(machine.file(f"{HOME}/.ssh/authorized_keys").read_text().splitlines()) == 1
        assert machine.file(KEY).read_text() != before
        boot = until(lambda: machine.sh("cat /var/lib/skyward/boot", check=False))
        assert boot.startswith(machine.sh("cat /proc/sys/kernel/random/boot_id").strip())
        assert len(running := machine.started("deadman.sh")) == 1, running
        pool.close()
        only_the_image(cloud)
        # It ends by itself when nobody needs it.
        pool = made(ami="torch", idle=3.0)
        pool.leave()
        cloud.leases_run_out()
        assert registry.conditions(registry.entries()) == []
        assert registry.entries() == []
        asyncio.run(sweep.sweep())
        only_the_image(cloud)


@pytest.mark.extensive
def test_the_machine_is_stopped_after_it_and_can_be_logged_in_to_once_more(cloud):
    with leaves_nothing():
        pool = made(warm=7200.0)
        (machine,) = cloud.machines
        machine.sh(f"mkdir {HOME}/.aws && echo mine > {HOME}/.aws/config && chown -R ubuntu {HOME}")
        machine.sh(f"mkdir {HOME}/dotfiles && echo mine > {HOME}/dotfiles/netrc")
        machine.sh(f"ln -s dotfiles/netrc {HOME}/.netrc")
        mounted = f"{HOME}/.config/gcloud/mounted"
        machine.sh(f"mkdir -p {mounted} && echo mine > {mounted}/../config")
        machine.sh(f"mount -t tmpfs none {mounted} && echo another > {mounted}/file")
        machine.sh(f"export HOME={HOME}\n{TAKE_OUT}")
        assert machine.file(f"{mounted}/file").read_text() == "another\n", "it is none of the disk"
        assert not machine.file(f"{mounted}/../config").exists()
        machine.sh(PUT_BACK)
        assert machine.file(f"{mounted}/../config").read_text() == "mine\n"
        # A disk that others share, as far as `stat` tells.
        machine.sh(
            f"mkdir {HOME}/.kube && echo shared > {HOME}/.kube/config && echo {SHARED} | base64 -d > /usr/local/bin/stat"
        )
        machine.sh("chmod +x /usr/local/bin/stat")
        before = machine.file(KEY).read_text()
        pool.close(image="torch")
        said = pool.closing.kept
        copied = cloud.image_disk(image_records.entries()[0].record.ami)
        assert "image torch is ami-" in said and "1 machine stopped until" in said
        pool = made(warm=7200.0)
        (machine,) = cloud.machines
        assert cloud.actions().count("StartInstances") == 1
        assert machine.file(KEY).read_text() == before
        assert machine.file(f"{HOME}/.aws/config").read_text() == "mine\n"
        assert machine.sh(f"cat {HOME}/.netrc") == "mine\n"
        there = files(copied)
        assert "/var/lib/skyward/lease" in there, "its timer goes on during the copy"
        assert f"{HOME}/.aws/config" not in there and f"{HOME}/dotfiles/netrc" not in there
        assert there[f"{HOME}/.kube/config"] == b"shared\n"
        pool.close(for_good=True)


def test_a_machine_that_lacks_its_keys_is_ended_and_not_stopped(cloud):
    with leaves_nothing():
        pool = made(warm=7200.0)
        (machine,) = cloud.machines
        machine.sh(f"echo {NO_TAR} | base64 -d > /usr/local/bin/tar && chmod +x /usr/local/bin/tar")
        pool.close(image="torch")
        said = pool.closing.kept
        assert "image torch is ami-" in said and "may not be back" in said
        assert "no disk takes it" in said and "they are ended" in said
        assert "StopInstances" not in cloud.actions()
        only_the_image(cloud)


def test_a_pool_whose_image_cannot_be_made_is_down_and_says_why(cloud):
    with leaves_nothing():
        pool = made()
        cloud.fail("CreateImage", "SnapshotCreationPerVolumeRateExceeded", times=0)
        pool.close(image="torch")
        assert "no image torch was made" in pool.closing.kept
        assert "SnapshotCreationPerVolumeRateExceeded" in pool.closing.kept
        cloud.calm()
        assert not image_records.entries()
    cloud.nothing_left()


def test_other_pools_have_no_images(cloud):
    with pytest.raises(PoolError, match="has no machines of AWS"):
        baked_images.check(PoolSpec(), "default-1", "torch")
