"""The way out that is lent: whom the proxy serves, where it goes and where not, and uv by way of it."""

import asyncio
import contextlib
import http.server
import subprocess
import threading
from base64 import b64encode
from functools import partial
from pathlib import Path

import pytest
from bootstrap.homes import facts_of, make_ready, package_index, shell_at
from bootstrap.local_shell import LocalShell

from skyward_nb.bootstrap import egress
from skyward_nb.bootstrap.egress import EgressProxy, EgressTunnel, is_public, place_of, sources
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.image import Image


@pytest.fixture
def site(tmp_path):
    """A server of files on this machine's loopback; its place, and the requests it had."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/large").write_bytes(b"x" * 3_000_000)
    (tmp_path / "site/hello").write_text("hello")
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            asked.append((self.requestline, dict(self.headers)))

    handler = partial(Handler, directory=str(tmp_path / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield ("127.0.0.1", server.server_address[1]), asked
        server.shutdown()
        thread.join()


@contextlib.asynccontextmanager
async def listening(proxy):
    shell = LocalShell(Path("/"), offers=True)
    async with shell.offer(proxy.serve) as port:
        yield port


def talk(proxy, said):
    """What the proxy answers to these bytes, and all that follows."""

    async def once():
        async with listening(proxy) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

    return asyncio.run(once())


def password(proxy):
    login = proxy.address(1).removeprefix("http://").partition("@")[0]
    return f"Proxy-Authorization: Basic {b64encode(login.encode()).decode()}\r\n"


def asking(proxy, first, more=""):
    return f"{first} HTTP/1.1\r\n{password(proxy)}{more}\r\n".encode()


# ── whom it serves ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "given",
    ["", "Proxy-Authorization: Basic c2t5d2FyZDpndWVzcw==\r\n", "Proxy-Authorization: Basic é\r\n"],
)
def test_who_lacks_the_password_gets_nowhere(site, given):
    (host, port), asked = site
    proxy = EgressProxy([(host, port)])
    for first in (f"CONNECT {host}:{port}", f"GET http://{host}:{port}/hello"):
        answer = talk(proxy, f"{first} HTTP/1.1\r\n{given}\r\n".encode("latin-1"))
        assert answer.startswith(b"HTTP/1.1 407 ")
    assert not asked


def test_passwords_are_of_one_proxy_each():
    assert password(EgressProxy()) != password(EgressProxy())


@pytest.mark.parametrize("said", [b"", b"hello\r\n\r\n", b"x" * 100_000, b"A B\r\n\r\n"])
def test_what_is_no_request_is_answered_so(said):
    assert talk(EgressProxy(), said).startswith(b"HTTP/1.1 400 ")


# ── where it goes ───────────────────────────────────────────────────────────────────────


def test_a_tunnel_carries_both_ways_and_counts(site):
    (host, port), _ = site
    moved = []
    proxy = EgressProxy([(host, port)], moved.append)
    inner = b"GET /large HTTP/1.0\r\n\r\n"
    answer = talk(proxy, asking(proxy, f"CONNECT {host}:{port}") + inner)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.0 200 ")
    assert answer.endswith(b"x" * 3_000_000)
    assert moved[-1] == len(answer) - len(b"HTTP/1.1 200 OK\r\n\r\n")
    assert moved == sorted(moved)


def test_a_plain_request_is_passed_on_without_what_was_for_the_proxy(site):
    (host, port), asked = site
    proxy = EgressProxy([(host, port)])
    first = f"GET http://{host}:{port}/hello?a=b"
    more = f"Host: {host}:{port}\r\nConnection: keep-alive\r\nX-Of-Ours: 1\r\n"
    answer = talk(proxy, asking(proxy, first, more))
    assert b"200 OK" in answer and answer.endswith(b"hello")
    ((line, headers),) = asked
    assert line == "GET /hello?a=b HTTP/1.1"
    assert headers == {"Host": f"{host}:{port}", "X-Of-Ours": "1", "Connection": "close"}


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("CONNECT {host}:{port}", b"only ports 80 and 443"),
        ("CONNECT 127.0.0.1:443", b"a private address"),
        ("CONNECT localhost:443", b"a private address"),
        ("CONNECT 10.0.0.1:443", b"a private address"),
        ("CONNECT 169.254.169.254:80", b"a private address"),
        ("CONNECT [::1]:443", b"a private address"),
        ("CONNECT [::ffff:192.168.0.1]:443", b"a private address"),
        ("CONNECT pypi.org:22", b"only ports 80 and 443"),
        ("CONNECT 8.8.8.8:22", b"only ports 80 and 443"),
        ("GET http://127.0.0.1/", b"a private address"),
        ("GET https://pypi.org/", b"not an address"),
        ("GET /hello", b"not an address"),
    ],
)
def test_it_goes_into_no_private_network(site, first, why, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    (host, port), asked = site
    proxy = EgressProxy([("elsewhere", 443)])
    answer = talk(proxy, asking(proxy, first.format(host=host, port=port)))
    assert answer.startswith(b"HTTP/1.1 403 ") and why in answer
    assert not asked


def test_a_place_that_does_not_answer_is_told():
    proxy = EgressProxy([("127.0.0.1", 9)])
    answer = talk(proxy, asking(proxy, "CONNECT 127.0.0.1:9"))
    assert answer.startswith(b"HTTP/1.1 502 ")


def test_a_proxy_that_this_machine_has_is_asked(site, monkeypatch):
    """The one beyond is one of ours, too: its password is said, and it alone is connected to."""
    (host, port), _ = site
    beyond = EgressProxy([("index.invalid", 443), (host, port)])
    reached = []

    async def reach(place, scheme):
        reached.append(place)
        return await asyncio.open_connection(host, port)

    beyond._reach = reach

    async def once():
        async with listening(beyond) as far:
            monkeypatch.setenv("https_proxy", beyond.address(far))
            near = EgressProxy([("index.invalid", 443)])
            async with listening(near) as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                request = asking(near, "CONNECT index.invalid:443")
                writer.write(request + b"GET /hello HTTP/1.0\r\n\r\n")
                answer = await reader.read()
                writer.close()
                return answer

    answer = asyncio.run(once())
    assert answer.endswith(b"hello")
    assert reached == [("index.invalid", 443)]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.1.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::8.8.8.8", True),
        ("2002:0a00:0001::1", False),
    ],
)
def test_which_addresses_are_public(address, public):
    assert is_public(address) == public


def test_sources_of_packages():
    variables = {
        "UV_DEFAULT_INDEX": "https://me:pw@index.corp/simple",
        "UV_INDEX": "a=http://one:8080/x b=https://two/y",
        "UV_FIND_LINKS": "/opt/wheels,https://three",
        "UV_PYTHON_INSTALL_MIRROR": "https://[fd00::1]:8443/python",
        "OTHER": "https://no/",
    }
    packages = ["six", "x @ https://four/x.whl"]
    assert sources(variables, packages) == {
        ("index.corp", 443), ("one", 8080), ("two", 443), ("three", 443), ("fd00::1", 8443), ("four", 443),
    }  # fmt: skip
    assert place_of("https://host:99999/") is None
    assert place_of("no address") is None


# ── whether it is lent ──────────────────────────────────────────────────────────────────


def way_out(shell, variables, address):
    """Whether a way was opened, its variables, why not, and what was told."""
    told = []

    async def once():
        async with contextlib.AsyncExitStack() as opened:
            way = EgressTunnel(shell, opened, variables, [], told.append)
            return await way.open(address), dict(way.variables), way.why, told

    return asyncio.run(once())


def test_it_is_lent_where_this_machine_gets_there(site, tmp_path):
    (host, port), _ = site
    address = f"http://{host}:{port}/simple"
    shell = LocalShell(tmp_path, name="gpu3", offers=True)
    opened, variables, why, told = way_out(shell, {"UV_DEFAULT_INDEX": address}, address)
    assert opened and not why
    assert {*variables} == {
        "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy",
    }  # fmt: skip
    assert told == [f"gpu3 does not reach {host}: packages come over this line"]


def test_it_is_not_lent_where_it_helps_nobody(site, tmp_path):
    (host, port), _ = site
    address = f"http://{host}:{port}/simple"
    index = {"UV_DEFAULT_INDEX": address}
    shell = LocalShell(tmp_path, offers=True)
    for own in ("HTTPS_PROXY", "all_proxy"):
        opened, variables, why, _ = way_out(shell, {**index, own: "http://proxy"}, address)
        assert (opened, variables, why) == (False, {}, "")
    opened, _, why, _ = way_out(shell, index, "http://127.0.0.1:9/simple")
    assert not opened and why.startswith("this machine does not reach it either (")
    opened, _, why, told = way_out(LocalShell(tmp_path), index, address)
    assert not opened and why == "it is this machine" and not told


# ── uv ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def away():
    """An index by HTTP, of the packages that pip finds in folders here."""
    with package_index() as address:
        yield address


@pytest.mark.usefixtures("few_needs")
def test_uv_gets_packages_by_way_of_it(away, tmp_path, monkeypatch):
    monkeypatch.setattr(egress, "_TELL_EACH", 0.0)
    home = tmp_path / "home"
    home.mkdir()
    # The machine itself has to ask a proxy that is not there.
    shell = LocalShell(home, {"HTTP_PROXY": "http://127.0.0.1:9"}, name="gpu3", offers=True)
    image = Image(env={"UV_DEFAULT_INDEX": away, "UV_CACHE_DIR": str(tmp_path / "cache")})
    made, told = make_ready(shell, image, facts_of(shell))
    assert Path(made.python).exists()
    text = told.text()
    assert "gpu3 does not reach 127.0.0.1: packages come over this line" in text
    assert "over this line: " in text and "Installed" in text
    code = "import msgspec, psutil; print('well')"
    ran = subprocess.run([made.python, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "well\n"
    before = shell.rounds
    _, told = make_ready(shell, image, facts_of(shell))
    assert shell.rounds == before + 2
    assert "line" not in told.text()


def test_where_it_cannot_be_lent_the_error_says_why(away, tmp_path):
    shell = shell_at(tmp_path / "home", HTTP_PROXY="http://127.0.0.1:9")
    env = {
        "UV_DEFAULT_INDEX": away,
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_HTTP_RETRIES": "0",
    }
    with pytest.raises(HostNotReady) as raised:
        make_ready(shell, Image(env=env), facts_of(shell))
    text = str(raised.value)
    assert "it does not reach 127.0.0.1:" in text
    assert "and nothing comes over this line: it is this machine. What helps: " in text
