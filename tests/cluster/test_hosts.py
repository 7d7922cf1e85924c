"""The test hosts themselves are what they are taken for."""

from __future__ import annotations


def test_one_logs_in_by_the_config(hosts):
    town = hosts(2)
    for host in town:
        done = town.ssh(host.name, "hostname; whoami; cd; pwd; echo $PATH; ls -a /tmp")
        assert done.returncode == 0, done.stderr + host.sshd_log()
        name, user, home, _, *files = done.stdout.split("\n")
        assert (name, user, home) == (host.name, "ann", "/home/ann")
        assert files == [".", "..", ""]
