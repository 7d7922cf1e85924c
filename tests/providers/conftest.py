"""A line to the host of a module, `server`, and a socket on it."""

import socket

import pytest
from providers.lines import Loop


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
