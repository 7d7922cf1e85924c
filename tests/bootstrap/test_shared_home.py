"""Hosts that share a home, where locks hold for one host alone and processes have the same numbers."""

import os
import shutil
import subprocess

import pytest
from bootstrap.homes import program

from skyward_nb.bootstrap.file_upload import UPLOAD_END, upload_script
from skyward_nb.bootstrap.folder_scripts import LOCK

needs_namespaces = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)
_MAKE = (
    LOCK
    + """
mkdir "$new" || exit 3
echo begun
read -r go
echo whole >"$new/file"
in_place || exit 3
"""
)


def _on_another_host(script, **env):
    """The script as process 1 of its own process namespace."""
    words = ["unshare", "--fork", "--pid", "sh", "-c", script]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    )


@needs_namespaces
def test_two_hosts_that_make_one_folder_at_once_leave_one_that_is_whole(tmp_path):
    final = tmp_path / "home/env"
    hosts = []
    for name in ("one", "two"):
        program(tmp_path / name, "flock", "exit 0")  # as where each host has its own locks
        program(tmp_path / name, "cat", f"echo {name}")  # of the number of its boot
        path = f"{tmp_path}/{name}:{os.environ['PATH']}"
        hosts.append(_on_another_host(_MAKE, final=str(final), PATH=path))
    assert [host.stdout.readline() for host in hosts] == ["begun\n", "begun\n"]
    said = [host.communicate("go\n", timeout=60)[0] for host in hosts]
    assert said == ["", ""], "the second one's packages are those that it has listed, and no more"
    assert [host.returncode for host in hosts] == [0, 0]
    assert [each.name for each in final.iterdir()] == ["file"]
    assert [each.name for each in final.parent.iterdir() if each.name.startswith(".new")] == []


@needs_namespaces
def test_two_hosts_that_send_one_file_at_once_both_do(tmp_path):
    target = tmp_path / "file"
    hosts = [_on_another_host(upload_script(str(target), 0o600)) for _ in range(2)]
    for host, text in zip(hosts, "ab", strict=True):
        host.stdin.write(text * 100_000)
        host.stdin.flush()
    for host in hosts:
        host.communicate(UPLOAD_END.decode(), timeout=60)
    assert [host.returncode for host in hosts] == [0, 0]
    assert target.read_text() in ("a" * 100_000, "b" * 100_000)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
