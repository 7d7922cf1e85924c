"""Machines for these tests: this one, with a home of its own; and the index of packages it has."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bootstrap.local_shell import LocalShell
from uv import find_uv_bin

from skyward_nb.bootstrap.environment import ready
from skyward_nb.bootstrap.machine_facts import MachineFacts, Tool, probe
from skyward_nb.bootstrap.uv import version
from skyward_nb.words.errors import HostNotReady

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = Tool(
    platform.python_version(),
    f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}",
)
"""The Python that this one is an environment of."""


BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
"""What tells this machine from others that share a home with it."""

UV = Tool(version(), find_uv_bin())


def facts_of(shell, **other) -> MachineFacts:
    """What the machine says, which has our Python and our uv even where these are out of its way."""
    return replace(asyncio.run(probe(shell)), **{"pythons": (PYTHON,), "uvs": (UV,), **other})


class Told(list):
    """What was told of readying."""

    def __call__(self, phase, detail, done):
        self.append((phase, detail, done))

    def text(self):
        return "\n".join(detail for _, detail, _ in self)


def make_ready(shell, image, facts=None, told=None):
    """An environment, and what was told of it."""
    told = Told() if told is None else told
    return asyncio.run(ready(shell, facts or facts_of(shell), image, told)), told


def program(folder: Path, name: str, text: str) -> Path:
    """A program of a shell's, to be found in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def index_of_pip() -> dict[str, str]:
    """Where pip finds packages here, as uv is told."""
    # The person's own settings, which tests have not otherwise.
    environ = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=environ, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_EXTRA_INDEX_URL",
        "find-links": "UV_FIND_LINKS",
    }
    found = {}
    for line in said.splitlines():
        key, _, value = line.partition("=")
        name = names.get(key.rpartition(".")[2])
        if name and name not in found:
            found[name] = value.strip("'\"").replace("\\n", " ")
    # To pip all indexes are one.
    found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return found | {name: os.environ[name] for name in names.values() if name in os.environ}


@contextlib.contextmanager
def package_index(address: str = "127.0.0.1") -> Iterator[str]:
    """An index of packages by HTTP at an address of this machine, where pip has one in a folder; else skips."""
    found = re.search(r"file://(/\S+)/simple", index_of_pip().get("UV_EXTRA_INDEX_URL", ""))
    if not found or not Path(found[1]).is_dir():
        pytest.skip("pip has no index of packages in a folder here")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    handler = functools.partial(Handler, directory=found[1])
    with http.server.ThreadingHTTPServer((address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://{address}:{server.server_address[1]}/simple"
        finally:
            server.shutdown()
            thread.join()


def shell_at(home: Path, **env: str) -> LocalShell:
    home.mkdir(exist_ok=True)
    return LocalShell(home, env)


def envs(home):
    return home / "home/.cache/skyward_nb/envs"


def folders(path):
    return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.exists() else []


def there(environment, code):
    words = [environment.python, "-P", "-c", code]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": environment.package}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.strip()


def refused(shell, image, facts=None):
    with pytest.raises(HostNotReady) as raised:
        make_ready(shell, image, facts)
    assert raised.value.host == shell.name
    return str(raised.value)


def fake_uv(folder, body="") -> Tool:
    """Makes folders in place of environments, and writes down how it was called."""
    log = folder / "calls"
    text = f"""
{{ echo "argv: $*"; env | grep ^UV_; }} >>{log}
{body}
case "$1" in
  venv) for last; do :; done; mkdir -p "$last/bin"; printf '#!/bin/sh\\n' >"$last/bin/python"
        chmod 700 "$last/bin/python" ;;
  pip) [ "$2" = install ] && sed 's/^/stdin: /' >>{log} ;;
esac
exit 0"""
    return Tool(version(), str(program(folder / "fake", "uv", text)))
