"""The sshd of a module, as it was made before each test; a line to it, and a socket on it."""

import socket

import pytest
from providers.lines import Loop
from sshds import sshd


@pytest.fixture(scope="module")
def server_of_module(request, tmp_path_factory):
    """With what the module says of its config, as SSHD."""
    options = getattr(request.module, "SSHD", {})
    with sshd(tmp_path_factory.mktemp("host") / "sshd", **options) as started:
        yield started


@pytest.fixture
def server(server_of_module):
    yield server_of_module
    server_of_module.renew()


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
