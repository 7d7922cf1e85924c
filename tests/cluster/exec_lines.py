"""Kernels that reach the hosts of a town by commands alone, as an engine runs them, in place of SSH's connections."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from cluster.town import BOXES

from skyward_nb.providers.far.exec_line import ExecLine
from skyward_nb.providers.ssh import host_machines
from skyward_nb.providers.ssh.dialer import Dialer
from skyward_nb.words.hosts import Host, SSHAccess

_SSH = {
    "BatchMode": "yes",
    "ConnectTimeout": "3",
    "LogLevel": "ERROR",
    "ServerAliveInterval": "1",
    "ServerAliveCountMax": "3",
}


class CommandDialer(Dialer):
    """Knows where the hosts are, and logs in nowhere."""

    def __init__(self, access: SSHAccess) -> None:
        super().__init__(access)
        assert access.config is not None
        self.config = Path(access.config)


def entered(host: Host, dialer: CommandDialer) -> ExecLine:
    """A line to a host whose commands are those of `sh -c` in its namespaces: no network, no sshd."""
    begin = json.loads(dialer.config.with_name(BOXES).read_text())[host.name]
    return ExecLine(host.name, lambda words: [*begin, *words])


def logged_in(host: Host, dialer: CommandDialer) -> ExecLine:
    """A line to a host whose commands are logins of OpenSSH's client, over a network that may be cut."""
    options = [word for key, value in _SSH.items() for word in ("-o", f"{key}={value}")]
    begin = ["ssh", "-F", str(dialer.config), *options, "--", host.name]
    return ExecLine(host.name, lambda words: [*begin, shlex.join(words)])


def install(name: str) -> None:
    """In this process, reach hosts by `entered` or `logged_in`."""
    vars(host_machines).update(Dialer=CommandDialer, HostLine=globals()[name])


def again(module: ModuleType, *but: str) -> dict[str, object]:
    """The tests of a module, for another one to have them, too."""
    own = vars(module).items()
    return {name: test for name, test in own if name.startswith("test_") and name not in but}


@contextmanager
def kernels_reach_hosts_by(name: str, folder: Path) -> Iterator[None]:
    """Have each kernel that is started meanwhile `install` such lines."""
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    code = (
        f"import sys\nsys.path.append({str(Path(__file__).parents[1])!r})\n"
        f"from cluster.exec_lines import install\ninstall({name!r})\nsys.path.pop()\ndel sys, install\n"
    )
    (startup / "lines.py").write_text(code)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("IPYTHONDIR", str(folder))
        yield
