"""Where this side is seen to come from: by a variable, or asked of a service that may fail or talk nonsense."""

import asyncio
import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from skyward_nb.providers.aws import callers as login_callers
from skyward_nb.providers.aws.api_errors import AWSError


def callers():
    return asyncio.run(login_callers.caller_networks())


@contextlib.contextmanager
def service(said, status=200):
    """A service on loopback that answers this; its address."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            """It is quiet."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("said", "networks"),
    [
        ("198.51.100.7", ("198.51.100.7/32",)),
        ("198.51.100.0/24", ("198.51.100.0/24",)),
        (" 198.51.100.7 , 2001:db8::1", ("198.51.100.7/32", "2001:db8::1/128")),
    ],
)
def test_a_variable_says_it(monkeypatch, said, networks):
    monkeypatch.setenv("SKYWARD_CALLER", said)
    monkeypatch.setenv("SKYWARD_CHECKIP_URL", "http://127.0.0.1:1/is-not-asked")
    assert callers() == networks


@pytest.mark.parametrize("said", ["", "me", "198.51.100.7/8", "198.51.100.7,"])
def test_a_variable_that_says_nothing_is_told(monkeypatch, said):
    monkeypatch.setenv("SKYWARD_CALLER", said)
    with pytest.raises(AWSError, match="is not an address") as caught:
        callers()
    assert caught.value.code == "NoCallerAddress" and repr(said) in caught.value.message


@pytest.fixture
def asked(monkeypatch):
    """Have a service be asked that is at this address."""
    monkeypatch.delenv("SKYWARD_CALLER", raising=False)
    return lambda url: monkeypatch.setenv("SKYWARD_CHECKIP_URL", url)


@pytest.mark.parametrize(
    ("said", "network"),
    [(b"198.51.100.7\n", "198.51.100.7/32"), (b"2001:db8::1", "2001:db8::1/128")],
)
def test_a_service_says_it(asked, said, network):
    with service(said) as url:
        asked(url)
        assert callers() == (network,)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"<html>log in first</html>", 200),
        (b"", 200),
        (b"\xff\xfe", 200),
        (b"198.51.100.7", 503),
        # As one that lets in the whole internet.
        (b"0.0.0.0/0", 200),
    ],
)
def test_a_service_that_answers_something_else_lets_nobody_in(asked, said, status):
    with service(said, status) as url:
        asked(url)
        with pytest.raises(AWSError, match=r"as in SKYWARD_CALLER=1\.2\.3\.4") as caught:
            callers()
    assert caught.value.code == "NoCallerAddress"


def test_a_service_that_is_not_there_is_told(asked):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        asked(url)
        with pytest.raises(AWSError, match=r"did not tell .* as in SKYWARD_CALLER=1\.2\.3\.4"):
            callers()


def test_who_could_change_the_answer_is_not_asked(asked):
    asked("http://checkip.example.com/")
    with pytest.raises(AWSError, match="it is not asked over https"):
        callers()
