"""The keys of one pool: for logins, of its machines' sshds, and the files that SSH reads.

A machine is known by its instance id: another machine may get its address later.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from skyward_nb.providers.aws.rental_records import RentalRecord, RunningInstance
from skyward_nb.providers.ssh.private_keys import KeyPair, read_pair
from skyward_nb.providers.state_files import write
from skyward_nb.words.hosts import Host, SSHAccess
from skyward_nb.words.provider_access import SSM

_KEY = "key"
_KNOWN = "known_hosts"
_CONFIG = "config"


def keep(folder: Path, pair: KeyPair) -> None:
    """Write the key of the pool to its folder, readable for this user only."""
    write(folder / _KEY, pair.private.encode())


def kept(folder: Path) -> KeyPair:
    """The key of the pool, as it was kept; raises OSError."""
    return read_pair((folder / _KEY).read_bytes(), "skyward_nb")


def access_to(folder: Path, record: RentalRecord, machines: Sequence[RunningInstance]) -> SSHAccess:
    """The access to machines by files in the pool's folder, which it writes."""
    known = {each.instance: (each.host_key,) for each in machines}
    know(folder, known)
    lines = ["# Also for `ssh -F`; the machines are known by their instances."]
    for each in machines:
        lines += [
            f"Host {each.instance}",
            f"  HostName {each.address}",
            f"  HostKeyAlias {each.instance}",
            *_way(record, each),
        ]
    lines += [
        "Host *",
        f"  User {record.user}",
        f'  IdentityFile "{folder / _KEY}"',
        "  IdentitiesOnly yes",
        "  IdentityAgent none",
        f'  UserKnownHostsFile "{folder / _KNOWN}"',
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  PasswordAuthentication no",
    ]
    write(folder / _CONFIG, ("\n".join(lines) + "\n").encode())
    return access_of(folder, machines)


def _way(record: RentalRecord, machine: RunningInstance) -> list[str]:
    """The lines of config about the way to a machine that is not reached directly.

    A jump host is logged in to by `ssh` itself, so with the user's own config and keys, not with those of the pool.
    """
    if record.jump == SSM:
        command = [
            "aws", "ssm", "start-session", "--target", machine.instance, "--region", machine.region,
            "--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=22",
        ]  # fmt: skip
        if record.profile:
            command += ["--profile", record.profile]
    elif record.jump:
        command = ["ssh", "-o", "BatchMode=yes", "-W", f"{machine.private}:22", "--", record.jump]
    else:
        return []
    # OpenSSH's config has tokens that begin with %.
    return [f"  ProxyCommand {shlex.join(command).replace('%', '%%')}"]


def access_of(folder: Path, machines: Sequence[RunningInstance]) -> SSHAccess:
    """The access to machines by existing files in the pool's folder."""
    hosts = tuple(Host(each.instance) for each in machines)
    return SSHAccess(hosts=hosts, config=str(folder / _CONFIG))


def know(folder: Path, keys: Mapping[str, Sequence[str]]) -> None:
    """Write the known host keys of machines, which replace all others."""
    lines = [f"{name} {' '.join(key.split()[:2])}\n" for name, each in keys.items() for key in each]
    write(folder / _KNOWN, "".join(lines).encode())
