"""Errors of machines that could not be prepared, from their last output, with what to do next."""

from __future__ import annotations

import re
import shlex

from skyward_nb.bootstrap.machine_facts import MachineFacts
from skyward_nb.bootstrap.remote_shell import ScriptResult, Shell
from skyward_nb.words.controls import spelt
from skyward_nb.words.errors import HostNotReady, spell_size
from skyward_nb.words.masking import masked_address

_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|os error (28|122)\b", re.IGNORECASE
)
_UNREACHED = re.compile(
    r"error sending request|dns error|tcp connect error|connection (refused|reset)|"
    r"operation timed out|request failed after|network is unreachable|certificate",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"Too many open files|os error 24\b", re.IGNORECASE)
_UNTRUSTED = re.compile(
    r"invalid peer certificate|certificate verify failed|SSL certificate problem|cannot verify .* certificate|"
    r"certificate of .* is not trusted",
    re.IGNORECASE,
)
"""In the words of uv, of pip and others by OpenSSL, of curl, and of wget."""
_ADDRESS = re.compile(r"https?://[^\s)`'\"]+")
_ASKED = re.compile(r"for url \((https?://[^\s)]+)\)")
"""What was asked for, in the words of uv; others name pages with more details, too."""
_WRITTEN = re.compile(rb"^written=(\d+)", re.MULTILINE)
_LINES = 12

_SPACE = """
df -Pk "$cache" | sed -n '2s/.* \\([0-9][0-9]*\\)  *[0-9]*%.*/free=\\1/p'
du -sk "$cache" 2>/dev/null | sed 's/^\\([0-9]*\\).*/used=\\1/'
"""


_LEAST = 32 << 20
"""Bytes that every environment takes, even if its packages are only linked."""


def check_room(host: str, facts: MachineFacts) -> None:
    """Raise `HostNotReady` if the disk has no room for an environment, before anything is sent."""
    if 0 < facts.disk_free < _LEAST:
        raise HostNotReady(
            host,
            f"there is no room for an environment: {spell_size(facts.disk_free)} is free for "
            f"{facts.cache}. Make room, or name a folder there on a larger disk: cache=/scratch/$USER, say.",
        )


async def failure(
    shell: Shell, facts: MachineFacts, ran: ScriptResult, what: str, no_way: str = ""
) -> HostNotReady:
    """The error for a script that failed; `what` was to be made.

    `no_way` says why packages cannot come over the line instead.
    """
    detail = last_words(ran.err)
    if is_full(ran.err):
        return HostNotReady(shell.name, await _full(shell, facts, ran, what), detail)
    if _TOO_MANY.search(ran.err):
        text = (
            f"{what}: it allows fewer open files than uv needs (`ulimit -n` there says how many). `nofile` in its "
            "/etc/security/limits.conf, or LimitNOFILE= of its sshd, allows more; an environment that is there is "
            'named by Image(interpreter="/path/to/python").'
        )
        return HostNotReady(shell.name, text, detail)
    if address := unreached_address(ran.err):
        words = untrusted if is_untrusted(ran.err) else unreached
        return HostNotReady(shell.name, words(address, what, no_way), detail)
    if is_unsolved(ran.err):
        text = f"{what}: no versions of its packages fit together. Change Image(pip=[...])"
        return HostNotReady(shell.name, text, detail)
    return HostNotReady(shell.name, what, detail or f"exit status {ran.code}")


def unreached_address(err: str) -> str:
    """The address that an installer did not reach, from its output; "" if something else failed."""
    is_unreached = _UNREACHED.search(err) and not _TOO_MANY.search(err)
    if not is_unreached:
        return ""
    if asked := _ASKED.search(err):
        return asked[1]
    found = _ADDRESS.search(err)
    return found.group() if found else ""


def host_of(address: str) -> str:
    """The host of an address."""
    return address.split("/")[2].rpartition("@")[2]


def unreached(address: str, what: str, no_way: str = "") -> str:
    """What to do if a machine does not reach an address."""
    nor = f", and nothing comes over this line: {no_way}" if no_way else ""
    return (
        f"{what}: it does not reach {host_of(address)}{nor}. What helps: a mirror that it reaches, by "
        'Image(env={"UV_DEFAULT_INDEX": "https://..."}), for Python itself UV_PYTHON_INSTALL_MIRROR; '
        'a proxy, by Image(env={"HTTPS_PROXY": ...}); an environment that is there, by '
        'Image(interpreter="/path/to/python").'
    )


def untrusted(address: str, what: str, no_way: str = "") -> str:
    """What to do if the certificate of an address is of no authority that the machine knows."""
    del no_way
    return (
        f"{what}: it does not trust the certificate of {host_of(address)} (often a TLS proxy's). Give the certificate of the "
        "proxy's authority: ca=FILE for a file of this machine, or "
        'Image(env={"SSL_CERT_FILE": "/etc/ssl/certs/company.pem"}) for a file there.'
    )


def is_untrusted(err: str) -> bool:
    """Whether a certificate was refused."""
    return bool(_UNTRUSTED.search(err))


def last_words(err: str) -> str:
    """The end of a script's output, with masked passwords."""
    lines = [spelt(line) for line in masked_address(err).splitlines() if line.strip()]
    return "\n".join(lines[-_LINES:])


def is_full(err: str) -> bool:
    """Whether a disk, or the user's quota of it, was full."""
    return bool(_FULL.search(err))


def is_unsolved(err: str) -> bool:
    """Whether no versions fit together."""
    return "No solution found" in err


async def _full(shell: Shell, facts: MachineFacts, ran: ScriptResult, what: str) -> str:
    space = await shell.run(f"cache={shlex.quote(facts.cache)}\n{_SPACE}")
    said = dict(line.split("=", 1) for line in space.out.decode().splitlines() if "=" in line)
    free, used = (int(said.get(key) or 0) * 1024 for key in ("free", "used"))
    written = _WRITTEN.search(ran.out)
    size = int(written[1]) * 1024 if written else 0
    took = f", and the environment takes more than {spell_size(size)}" if size else ""
    return (
        f"{what}: the disk is full. {spell_size(free)} is free for {facts.cache} there{took}; the "
        f"unfinished one was removed. Make room (earlier environments take {spell_size(used)}: rm -r "
        f"{shlex.quote(facts.cache)}; `uv cache clean`), or name a folder there on a larger disk: "
        "cache=/scratch/$USER, say."
    )
