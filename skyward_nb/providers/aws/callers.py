"""The networks from which machines are logged in to: what their security group lets in."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import shutil
import socket
import subprocess
import urllib.request
from http.client import HTTPException

from skyward_nb.providers.aws.api_errors import AWSError
from skyward_nb.providers.aws.client import on_thread
from skyward_nb.words.errors import OptionError
from skyward_nb.words.provider_access import SSM
from skyward_nb.words.spec import PoolSpec

_ASK = "https://checkip.amazonaws.com"
_ASK_LIMIT = 10.0
_JUMP_LIMIT = 30.0
_SOURCE = re.compile(r"\bsrc (\S+)")
_NO_ADDRESS = "NoCallerAddress"


_TOOLS = {
    "aws": "AWS's command line (https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html)",
    "session-manager-plugin": "its plugin (https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "session-manager-working-with-install-plugin.html)",
    "ssh": "OpenSSH's client",
}


def check_way(spec: PoolSpec) -> None:
    """Raise `OptionError` if this machine lacks a program that `jump=` needs: before anything is rented."""
    jump = spec.aws.jump if spec.aws is not None else None
    if not jump:
        return
    for tool in ("aws", "session-manager-plugin") if jump == SSM else ("ssh",):
        if shutil.which(tool) is None:
            others = " Or name a host on the way, jump=me@bastion." if jump == SSM else ""
            raise OptionError(
                "jump",
                f"jump={jump} needs `{tool}`, which is not here: install {_TOOLS[tool]}.{others}",
            )


async def callers_for(jump: str, named: tuple[str, ...], inside: str) -> tuple[str, ...]:
    """The networks to let in; none where AWS's Session Manager is the way. Raises `AWSError`.

    Those that are `named`, or else the address of the `jump` host on the machines' network. `inside` is an address of that
    network if machines are logged in to there: then that of this side on the way there comes, and its public one beside.
    """
    if jump == SSM:
        return ()
    if named:
        return named
    if jump:
        return (await on_thread(lambda: _source_of(jump, inside)),)
    if not inside or "SKYWARD_CALLER" in os.environ:
        return await caller_networks()
    own = await asyncio.to_thread(_source_to, inside)
    try:
        seen = await caller_networks()
    except AWSError:
        if not own:
            raise
        seen = ()  # a company's network may let nobody ask outside
    return tuple(dict.fromkeys((*own, *seen)))


async def caller_networks() -> tuple[str, ...]:
    """The networks of this machine as machines see it: `SKYWARD_CALLER`, or the answer of a service.

    The service is https://checkip.amazonaws.com, or that of `SKYWARD_CHECKIP_URL`. Raises `AWSError`.
    """
    said = os.environ.get("SKYWARD_CALLER")
    if said is None:
        return (await _seen_from(),)
    try:
        return tuple(str(ipaddress.ip_network(each.strip())) for each in said.split(","))
    except ValueError as error:
        why = f"SKYWARD_CALLER={said!r} is not an address: write one as in SKYWARD_CALLER=1.2.3.4"
        raise AWSError(_NO_ADDRESS, why, "caller") from error


async def _seen_from() -> str:
    """The address in a service's answer, as a network; raises `AWSError` for any other answer."""
    url = os.environ.get("SKYWARD_CHECKIP_URL", _ASK)
    try:
        # An answer that is a network, such as 0.0.0.0/0, is refused.
        return str(ipaddress.ip_network(ipaddress.ip_address(await on_thread(lambda: _read(url)))))
    except (OSError, ValueError, HTTPException) as error:
        why = (
            f"{url} did not tell this machine's address ({error}): name it, caller=1.2.3.4, or set it, "
            "as in SKYWARD_CALLER=1.2.3.4"
        )
        raise AWSError(_NO_ADDRESS, why, "caller") from error


def _read(url: str) -> str:
    if not url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
        raise ValueError("it is not asked over https")
    with urllib.request.urlopen(url, timeout=_ASK_LIMIT) as answer:  # noqa: S310 - checked above
        return answer.read(100).decode().strip()


def _source_to(address: str) -> tuple[str, ...]:
    """The address of this machine on its way to another one; nothing is sent."""
    try:
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(kind, socket.SOCK_DGRAM) as asking:
            asking.connect((address, 22))
            return (str(ipaddress.ip_network(asking.getsockname()[0])),)
    except OSError:
        return ()


def _source_of(jump: str, inside: str) -> str:
    """The address of a jump host on its way to the machines, as a network; raises `AWSError`."""
    command = [shutil.which("ssh") or "ssh", "-o", "BatchMode=yes", "--", jump]
    try:
        ran = subprocess.run(  # noqa: S603 - the user's own host, and a fixed command
            [*command, f"ip -o route get {inside}"],
            capture_output=True, text=True, timeout=_JUMP_LIMIT, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return source_in(ran.stdout, ran.stderr)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = (
            f"jump={jump} did not tell its address on the machines' network ({error}): name it, as in "
            "caller=10.0.0.5"
        )
        raise AWSError(_NO_ADDRESS, why, "caller") from error


def source_in(out: str, err: str) -> str:
    """The source in what `ip route get` says, as a network; raises ValueError with its other words."""
    found = _SOURCE.search(out)
    if found is None:
        raise ValueError(" ".join((err or out).split())[:300] or "it said nothing")
    return str(ipaddress.ip_network(ipaddress.ip_address(found[1])))
