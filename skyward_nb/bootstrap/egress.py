"""Internet access for a machine without it: an HTTP proxy at its loopback, while packages are installed.

The proxy connects to public addresses and to the named sources of packages, and to nothing else in this
machine's network. Clients need its password: the machine may have other users.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import secrets
import socket
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from skyward_nb.bootstrap.remote_shell import NotOffered, Shell, untold
from skyward_nb.words.errors import spell_size

Place = tuple[str, int]
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_USER = "skyward"
_PORTS = {"http": 80, "https": 443}
_CHUNK = 128 << 10
_HEAD_LIMIT = 30.0
_REACH_LIMIT = 5.0
_TELL_EACH = 1.0
_SOURCES = (
    "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX", "UV_INDEX_URL",
    "UV_PYTHON_INSTALL_MIRROR", "UV_PYPY_INSTALL_MIRROR",
)  # fmt: skip
_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
_ADDRESS = re.compile(r"https?://[^\s,'\"]+")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_USUAL = frozenset(
    (host, 443)
    for host in (
        "pypi.org",
        "files.pythonhosted.org",
        "download.pytorch.org",
        "download-r2.pytorch.org",
        "github.com",
        "objects.githubusercontent.com",
        "release-assets.githubusercontent.com",
        "astral.sh",
        "releases.astral.sh",
    )
)
"""The usual sources of uv; some networks have their own mirrors by these names."""


class _Refused(Exception):
    """This proxy does not serve the request; the text says why."""


def sources(variables: Mapping[str, str], packages: Iterable[str]) -> set[Place]:
    """The sources of packages in variables for uv, and in requirements that are addresses."""
    texts = [variables.get(name, "") for name in _SOURCES]
    found = (address for text in (*texts, *packages) for address in _ADDRESS.findall(text))
    return {place for address in found if (place := place_of(address))}


def place_of(address: str) -> Place | None:
    """The host and the port of an address; None if it has none."""
    try:
        return _place(urlsplit(address))
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Whether an IP address is public, or embeds a public IPv4 address."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


class EgressProxy:
    """Serves clients with the password: CONNECT, and plain requests, one on each connection.

    `named` are hosts and ports that it connects to even at private addresses; `told` gets the number of
    bytes that went to clients so far.
    """

    def __init__(self, named: Collection[Place] = (), told: Callable[[int], None] = untold) -> None:
        self._sources = _USUAL | frozenset(named)
        self._told = told
        self._password = secrets.token_urlsafe(24)
        self._moved = 0

    def address(self, port: int) -> str:
        """The proxy's address for clients, if it listens at that port of the loopback."""
        return f"http://{_USER}:{self._password}@127.0.0.1:{port}"

    async def hindrance(self, place: Place) -> str:
        """Why this machine does not reach a place; "" if it does."""
        try:
            _, writer = await asyncio.wait_for(self._reach(place, "https"), _REACH_LIMIT)
        except TimeoutError:
            return f"no answer in {_REACH_LIMIT:g} s"
        except (OSError, _Refused) as error:
            return str(getattr(error, "strerror", None) or error)
        writer.close()
        return ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which the caller closes."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_LIMIT)
            first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
            method, target, _ = first.split(" ")
        except (TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await _answer(writer, "400 Bad Request")
            return
        if not self._is_known(lines):
            more = 'Proxy-Authenticate: Basic realm="skyward_nb"\r\n'
            await _answer(writer, "407 Proxy Authentication Required", more)
            return
        is_tunnel = method == "CONNECT"
        try:
            parts = urlsplit(f"//{target}" if is_tunnel else target)
            place = _place(parts)
            if place is None or (not is_tunnel and parts.scheme != "http"):
                raise _Refused(f"{target} is not an address")
            there, back = await self._reach(place, "https" if is_tunnel else "http")
        except (_Refused, ValueError) as error:
            await _answer(writer, "403 Forbidden", said=str(error))
            return
        except OSError as error:
            await _answer(writer, "502 Bad Gateway", said=str(error))
            return
        try:
            if is_tunnel:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                back.write(_passed_on(method, parts, lines))
            await self._join((reader, writer), (there, back))
        finally:
            back.close()

    def _is_known(self, lines: list[str]) -> bool:
        """Whether a client sent the password."""
        given = ""
        for line in lines:
            name, _, value = line.partition(":")
            if name.lower() == "proxy-authorization":
                kind, _, given = value.strip().partition(" ")
                given = given.strip() if kind.lower() == "basic" else ""
        try:
            said = b64decode(given, validate=True)
        except ValueError:
            return False
        return secrets.compare_digest(said, f"{_USER}:{self._password}".encode())

    # ── there ───────────────────────────────────────────────────────────────────────────

    async def _reach(self, place: Place, scheme: str) -> _Streams:
        """Connect to a place that this proxy serves; raises `_Refused`, and OSError."""
        host, port = place
        upstream = _upstream(scheme, host)
        if place in self._sources:
            return await _by_way_of(upstream, place) if upstream else await _connected(host, port)
        if port not in _PORTS.values():
            raise _Refused(f"{host}:{port}: only ports 80 and 443 are allowed")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = dict.fromkeys(str(each[4][0]) for each in found)
        public = [each for each in addresses if is_public(each)]
        if not public:
            raise _Refused(f"{host} has a private address, which this proxy does not serve")
        if upstream:
            return await _by_way_of(upstream, place)
        # By the address that was checked: the name may resolve to another one now.
        for address in public[:-1]:
            with contextlib.suppress(OSError):
                return await _connected(address, port)
        return await _connected(public[-1], port)

    async def _join(self, here: _Streams, there: _Streams) -> None:
        """Move bytes both ways until both sides have sent all, or one is gone."""
        ways = [
            asyncio.ensure_future(self._carry(there[0], here[1], counts=True)),
            asyncio.ensure_future(self._carry(here[0], there[1], counts=False)),
        ]
        try:
            await asyncio.gather(*ways)
        except OSError:
            """One side is gone; the other one is closed."""
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counts: bool
    ) -> None:
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
            if counts:
                self._moved += len(data)
                self._told(self._moved)
        if sink.can_write_eof():
            sink.write_eof()


class EgressTunnel:
    """Internet access of one machine by way of this one: opened on demand, closed with `opened`.

    `variables` are for uv there; `why` is the reason if it cannot be opened; `moved` counts its bytes.
    """

    def __init__(
        self,
        shell: Shell,
        opened: contextlib.AsyncExitStack,
        variables: Mapping[str, str],
        packages: Iterable[str],
        tell: Callable[[str], None],
    ) -> None:
        self.variables: dict[str, str] = {}
        self.why: str = ""
        self.moved: int = 0
        self._shell = shell
        self._opened = opened
        self._sources = sources(variables, packages)
        self._is_asked_otherwise = any(name.upper() in _PROXIES for name in variables)
        self._tell = tell
        self._said = 0.0

    async def open(self, address: str) -> bool:
        """Open it for an address that the machine does not reach; whether a new attempt makes sense.

        Raises `ShellGone`.
        """
        place = place_of(address)
        if self.variables or self.why or self._is_asked_otherwise or place is None:
            return False
        proxy = EgressProxy(self._sources, self._count)
        if why := await proxy.hindrance(place):
            self.why = f"this machine does not reach it either ({why})"
            return False
        try:
            port = await self._opened.enter_async_context(self._shell.offer(proxy.serve))
        except NotOffered as error:
            self.why = str(error)
            return False
        names = [each for name in _PROXIES for each in (name, name.lower())]
        self.variables = dict.fromkeys(names, proxy.address(port))
        self._tell(f"{self._shell.name} does not reach {place[0]}: packages come over this line")
        return True

    def _count(self, moved: int) -> None:
        self.moved = moved
        now = time.monotonic()
        if now - self._said > _TELL_EACH:
            self._said = now
            self._tell(f"over this line: {spell_size(moved)}")


def _place(parts: SplitResult) -> Place | None:
    port = parts.port or _PORTS.get(parts.scheme)
    return (parts.hostname.rstrip("."), port) if parts.hostname and port else None


def _upstream(scheme: str, host: str) -> str:
    """The proxy that this machine itself uses for such a host; "" for none."""
    known = getproxies()
    address = known.get(scheme) or known.get("all") or ""
    return "" if not address or proxy_bypass(host) else address


async def _connected(host: str, port: int) -> _Streams:
    return await asyncio.wait_for(asyncio.open_connection(host, port), _REACH_LIMIT)


async def _by_way_of(upstream: str, place: Place) -> _Streams:
    """A tunnel through the proxy that this machine has."""
    parts = urlsplit(upstream if "//" in upstream else f"http://{upstream}")
    proxy = _place(parts)
    if proxy is None or parts.scheme != "http":
        raise OSError("this machine's own proxy is not an HTTP proxy")
    reader, writer = await _connected(*proxy)
    try:
        host = f"[{place[0]}]" if ":" in place[0] else place[0]
        asked = f"CONNECT {host}:{place[1]} HTTP/1.1\r\nHost: {host}:{place[1]}\r\n"
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            asked += f"Proxy-Authorization: Basic {b64encode(login.encode()).decode()}\r\n"
        writer.write(f"{asked}\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_LIMIT)
        words = head.split(None, 2)
        if len(words) < 2 or words[1] != b"200":
            raise OSError("this machine's own proxy refuses it")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        writer.close()
        raise OSError("this machine's own proxy does not answer") from error
    except BaseException:
        writer.close()
        raise
    return reader, writer


def _passed_on(method: str, parts: SplitResult, lines: list[str]) -> bytes:
    """A plain request for the server: the last one on its connection, without headers for the proxy."""
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = ""
    for line in lines:
        name = line.partition(":")[0].lower()
        if name not in ("connection", "keep-alive") and not name.startswith("proxy-"):
            kept += f"{line}\r\n"
    return f"{method} {path} HTTP/1.1\r\n{kept}Connection: close\r\n\r\n".encode("latin-1")


async def _answer(
    writer: asyncio.StreamWriter, status: str, more: str = "", said: str = ""
) -> None:
    body = f"{said}\n" if said else ""
    text = f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n{body}"
    with contextlib.suppress(OSError):
        writer.write(text.encode())
        await writer.drain()
