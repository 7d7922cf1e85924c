"""Packages of Debian that are installed on a machine, read from what `dpkg-query` lists. Pure."""

from __future__ import annotations

FORMAT = "${Package}\t${Architecture}\t${Version}\t${db:Status-Status}\t${Provides}\n"
"""What `dpkg-query --show --showformat=` is asked for."""


def installed(listed: str) -> set[str]:
    """Every way to name a package that is installed: with its architecture, its version, or both.

    And what packages stand in for.
    """
    names: set[str] = set()
    for line in listed.splitlines():
        name, machine, version, status, provided = line.split("\t")
        if status != "installed":
            continue
        for each in (name, f"{name}:{machine}"):
            names |= {each, f"{each}={version}"}
        names |= {part.partition("(")[0].strip() for part in provided.split(",")}
    return names
