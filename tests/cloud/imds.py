"""What a machine is told of itself at 169.254.169.254: only with a session's token, as IMDSv2 has it.

docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html, and of notices
docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = "169.254.169.254"
_NETWORK = 0x40000000


def listening(pid: int, address: str, port: int) -> socket.socket:
    """A socket that listens in the network of another process: it stays there, whoever holds it."""
    made: list[socket.socket | BaseException] = []

    def make() -> None:
        # A thread's network is its own, and this one ends in the other.
        descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NETWORK):
                raise OSError(ctypes.get_errno(), "setns")
            made.append(socket.create_server((address, port)))
        except OSError as error:
            made.append(error)
        finally:
            os.close(descriptor)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]


class Metadata:
    """One machine's answers; `values` are paths below `/latest/`."""

    def __init__(self, pid: int, values: Mapping[str, str | bytes]) -> None:
        self.values: dict[str, str | bytes] = dict(values)
        self.asked: list[str] = []
        """Paths that were asked for, in order."""
        self._tokens: set[str] = set()
        self._server = ThreadingHTTPServer((ADDRESS, 80), self._handler(), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening(pid, ADDRESS, 80)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                if self.path != "/latest/api/token":
                    return self._say(404)
                if not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdigit():
                    return self._say(400)
                token = secrets.token_urlsafe(24)
                outer._tokens.add(token)
                return self._say(200, token.encode())

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if self.headers.get("X-aws-ec2-metadata-token") not in outer._tokens:
                    return self._say(401)
                value = outer.values.get(self.path.removeprefix("/latest/").rstrip("/"))
                if value is None:
                    return self._say(404)
                return self._say(200, value.encode() if isinstance(value, str) else value)

            def _say(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        return Handler

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def of(
    *,
    instance: str,
    kind: str,
    image: str,
    zone: str,
    public: str,
    private: str,
    spot: bool,
    user_data: bytes,
) -> dict[str, str | bytes]:
    """What a machine is told from its first moment on."""
    paths: dict[str, str | bytes] = {
        "meta-data/instance-id": instance,
        "meta-data/instance-type": kind,
        "meta-data/ami-id": image,
        "meta-data/placement/availability-zone": zone,
        "meta-data/placement/region": zone[:-1],
        "meta-data/local-ipv4": private,
        "meta-data/local-hostname": f"ip-{private.replace('.', '-')}.ec2.internal",
        "meta-data/instance-life-cycle": "spot" if spot else "on-demand",
    }
    if public:
        paths["meta-data/public-ipv4"] = public
    if user_data:
        paths["user-data"] = user_data
    return paths
