"""EFS and FSx for Lustre as folders: what a machine is asked to mount, and what is said where that fails.

The programs of the machine are played: `mount` notes its arguments. No file system of AWS is mounted here.
"""

from __future__ import annotations

import asyncio
import stat

import pytest
from bootstrap.local_shell import LocalShell

from skyward_nb.bootstrap import file_systems, volumes
from skyward_nb.bootstrap.remote_shell import ScriptResult
from skyward_nb.bootstrap.requirements import image_of
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.spec import PoolSpec
from skyward_nb.words.volume import Volume

EFS = "fs-0123456789abcdef0"
HOST = f"{EFS}.efs.eu-west-1.amazonaws.com"
_CURL = """
for last; do :; done
case $last in
*/api/token) echo token ;;
*/placement/region) echo eu-west-1 ;;
*/services/domain) echo amazonaws.com ;;
*/security-groups) echo sky-default-abc ;;
*) exit 22 ;;
esac
"""

_PLAIN = (
    "sh", "id", "mkdir", "cat", "head", "ls", "timeout", "printf", "chmod", "dirname", "env", "grep", "sleep", "rm",
)  # fmt: skip


class Machine:
    """A machine whose programs are played: each is a script, and `calls` has what was mounted."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.noted = folder / "calls"
        self.noted.touch()
        self.has("curl", _CURL)
        self.has("getent", "exit 0")
        self.has("mount.nfs4", "exit 0")
        self.has("mountpoint", f'grep -q " $2$" {self.noted}')
        self.has("mount", f'echo "$@" >>{self.noted}')
        self.has("sudo", 'shift; exec "$@"')
        monkeypatch.setattr(
            file_systems, "_MOUNT", file_systems._MOUNT.replace("PATH=$PATH:/usr/sbin:/sbin\n", "")
        )
        # Whether this machine has a client of its own does not count.
        self.shell = LocalShell(folder, {"PATH": f"{self.bin}:{self.plain()}"})
        self._patch = monkeypatch

    def plain(self):
        """The programs that every machine has."""
        own = self.folder / "plain"
        own.mkdir()
        for name in _PLAIN:
            for place in ("/bin", "/usr/bin"):
                path = own / name
                if not path.exists() and (real := (type(own)(place) / name)).exists():
                    path.symlink_to(real)
        return own

    def has(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def lacks(self, name):
        (self.bin / name).unlink()

    def mount(self, *given, role=False):
        asyncio.run(volumes.mount(self.shell, given, endpoint=None, has_role=role))

    @property
    def calls(self):
        return self.noted.read_text().splitlines()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path, monkeypatch)
    noted = tmp_path / "run"
    real = file_systems._script
    monkeypatch.setattr(
        file_systems,
        "_script",
        lambda *given, **named: real(*given, **named).replace("/run/skyward", str(noted)),
    )
    return made


def efs(machine, **more):
    return Volume(**{"efs": EFS, "mount": str(machine.folder / "data"), **more})


def failed(machine, *given, **named):
    with pytest.raises(HostNotReady) as caught:
        machine.mount(*given, **named)
    return caught.value.message


def test_without_a_helper_efs_goes_by_nfs_as_aws_documents(machine):
    volume = efs(machine, prefix="team/a")
    for _ in range(2):  # a machine that is readied again has it already
        machine.mount(volume)
    options = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,ro"
    assert machine.calls == [f"-t nfs4 -o {options} {HOST}:/team/a {volume.mount}"]


def test_the_helper_is_asked_for_tls(machine):
    machine.has("mount.efs", "exit 0")
    machine.lacks("mount.nfs4")
    volume = efs(machine, read_only=False)
    machine.mount(volume)
    assert machine.calls == [f"-t efs -o tls {EFS}:/ {volume.mount}"]


@pytest.mark.parametrize(
    ("refuses", "asked"), [("nothing", ["tls,iam"]), ("*iam*", ["tls,iam", "tls"])]
)
def test_a_role_is_shown_first_as_efs_may_let_others_in_to_read_alone(machine, refuses, asked):
    machine.has("mount.efs", "exit 0")
    machine.has(
        "mount",
        f'echo "$@" >>{machine.noted}; case $4 in {refuses}) echo denied >&2; exit 1 ;; esac',
    )
    machine.mount(efs(machine, read_only=False), role=True)
    assert [each.split()[3] for each in machine.calls] == asked


@pytest.mark.parametrize("role", [False, True])
def test_the_helper_that_hears_nothing_is_told_as_such_and_tried_once(machine, monkeypatch, role):
    monkeypatch.setattr(file_systems, "_PATIENCE", 1)
    machine.has("mount.efs", "exit 0")
    machine.has("mount", f'echo "$@" >>{machine.noted}; exec sleep 60')
    # Its second is over once it was asked: a real one may be over before.
    asked = f"until [ -s {machine.noted} ]; do sleep 0.05; done"
    machine.has("timeout", f'shift 3; "$@" & {asked}; kill $!; exit 124')
    assert "port 2049" in failed(machine, efs(machine), role=role)
    assert len(machine.calls) == 1


def test_two_tries_that_take_as_long_as_they_may_fit_the_limit():
    assert file_systems._LIMIT > 2 * file_systems._PATIENCE + 30


def test_fsx_goes_by_lustre(machine):
    machine.has("mount.lustre", "exit 0")
    volume = Volume(fsx=EFS, prefix="abcdbev/run1", mount=str(machine.folder / "fast"))
    machine.mount(volume)
    host = f"{EFS}.fsx.eu-west-1.amazonaws.com"
    assert machine.calls == [
        f"-t lustre -o relatime,flock,ro {host}@tcp:/abcdbev/run1 {volume.mount}"
    ]
    machine.lacks("mount.lustre")
    other = Volume(fsx=EFS, prefix="abcdbev", mount=str(machine.folder / "other"))
    assert "install-lustre-client.html" in failed(machine, other)


def test_where_nothing_answers_the_port_and_the_group_are_named(machine, monkeypatch):
    monkeypatch.setattr(file_systems, "_PATIENCE", 1)
    machine.has("mount", "exec sleep 60")
    said = failed(machine, efs(machine))
    for words in (f"efs://{EFS} cannot be at", HOST, "port 2049", "sky-default-abc", "within 1 s"):
        assert words in said
    assert "security_group=sg-" in said


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("mount.nfs4: Connection timed out", "port 2049"),
        ("mount.nfs4: No route to host", "port 2049"),
        ("mount.nfs4: access denied by server while mounting", "amazon-efs-utils"),
        ("mount.nfs4: mounting failed, reason given by server: No such file or directory", "no folder /a in it"),
        ("mount.nfs4: an operation failed", "it cannot be mounted"),
    ],
)  # fmt: skip
def test_what_mount_says_is_put_in_words(machine, says, words):
    machine.has("mount", f"echo {says!r} >&2; exit 32")
    assert words in failed(machine, efs(machine, prefix="a"))


def test_no_name_is_told(machine):
    machine.has("getent", "exit 2")
    assert "has it a mount target in the zone" in failed(machine, efs(machine))


def test_who_may_not_write_there_is_told_what_to_make(machine):
    ran = ScriptResult(49, b"\nsky=host there\n", "")
    said = file_systems._why(efs(machine), ran)
    assert "make a folder in it that it may write to" in said
    assert "elasticfilesystem:ClientWrite" in said
    said = file_systems._why(Volume(fsx=EFS, prefix="abcdbev", mount="/fast"), ran)
    assert "elasticfilesystem" not in said


def test_the_client_of_nfs_is_installed_where_it_lacks(machine, monkeypatch):
    machine.lacks("mount.nfs4")
    assert "add nfs-utils" in failed(machine, efs(machine))
    asked = []

    async def install(_shell, packages, seen, _tell):
        asked.append((tuple(packages), b"sky=over" in seen))
        machine.has("mount.nfs4", "exit 0")

    machine.has("dpkg-query", "exit 0")
    monkeypatch.setattr(file_systems, "install_packages", install)
    machine.mount(efs(machine))
    assert asked == [(("nfs-common",), True)] and len(machine.calls) == 1


def test_what_is_there_already_stays(machine):
    data = machine.folder / "data"
    data.mkdir()
    (data / "own").touch()
    assert "something else is there already" in failed(machine, efs(machine))
    (data / "own").unlink()
    machine.mount(efs(machine))
    other = Volume(efs="fs-0000000000000000f", mount=str(data))
    assert "something else is there already" in failed(machine, other)


def test_a_line_that_is_cut_after_the_mount_leaves_it_ours(machine):
    up = "read -r _ _ _ script _ </proc/$PPID/stat"  # this is called by `timeout`, and that by the script
    machine.has("mount", f'echo "$@" >>{machine.noted}; {up}; kill -9 "$script"')
    with pytest.raises(HostNotReady):
        machine.mount(efs(machine))
    machine.mount(efs(machine))
    assert len(machine.calls) == 1


def test_what_could_not_be_mounted_is_not_noted(machine):
    machine.has("mount", "exit 32")
    failed(machine, efs(machine))
    assert not [*(machine.folder / "run" / "volumes").iterdir()]


def test_folders_whose_names_differ_by_a_dash_alone_are_two(machine):
    one = Volume(efs=EFS, mount=str(machine.folder / "a" / "b"))
    machine.mount(one)
    machine.has("mountpoint", "exit 0")
    two = Volume(efs=EFS, mount=str(machine.folder / "a-b"))
    assert "something else is there already" in failed(machine, two)
    machine.mount(one)


def test_only_buckets_take_s3fs():
    assert image_of(PoolSpec(volumes=(Volume(efs=EFS, mount="/data"),))).apt == ()
