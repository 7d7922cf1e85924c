"""The sshd of a module, as it was made before each test; a line to it, and a socket on it."""

import socket
import sys

import pytest
from providers.lines import Loop
from providers.ssh_hosts import host, names_of
from sshds import sshd

from skyward_nb.words.hosts import SSHAccess, parse_hosts
from skyward_nb.words.image import Image


@pytest.fixture(scope="module")
def server_of_module(request, tmp_path_factory):
    """With what the module says of its config, as SSHD; or a host of pools, where it says IS_FOR_POOLS."""
    folder = tmp_path_factory.mktemp("host")
    is_for_pools = getattr(request.module, "IS_FOR_POOLS", False)
    options = getattr(request.module, "SSHD", {})
    with host(folder) if is_for_pools else sshd(folder / "sshd", **options) as started:
        yield started


@pytest.fixture
def server(request, server_of_module):
    """Of pools, the package stays there from test to test."""
    if getattr(request.module, "IS_FOR_POOLS", False):
        names_of(server_of_module)
    yield server_of_module
    server_of_module.renew()


@pytest.fixture
def ssh(server, make):
    """`ssh("one", "two")` is a pool on hosts of these names."""

    def make_one(*names, **options):
        names = names or ("one", "two")
        access = SSHAccess(hosts=parse_hosts(names), config=str(server.client_config))
        return make(**{
            "provider": "ssh", "ssh": access, "nodes": len(names),
            "image": Image(interpreter=sys.executable), **options,
        })  # fmt: skip

    return make_one


@pytest.fixture
def far(server):
    made = Loop(server)
    yield made
    made.close()


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen(64)
        made.settimeout(20)
        yield made
