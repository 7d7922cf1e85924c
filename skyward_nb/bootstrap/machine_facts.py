"""Facts of a machine, asked in one round trip: a script for any /bin/sh, and the reading of its answer.

The script changes nothing there, except that it makes the folder for environments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.words.errors import HostNotReady, spell_size


@dataclass(frozen=True)
class Tool:
    """A program of a machine: its version and its path."""

    version: str
    path: str


@dataclass(frozen=True)
class MachineFacts:
    """Facts of a machine; sizes in bytes.

    `lacks` are programs, and `cache`, `privacy` or `exec` where that folder cannot be used.
    `libc` is, for example, `glibc 2.36`; `cache` the user's folder for environments, if it could be made;
    `pythons` are CPythons and `uvs` copies of uv, in the order of PATH; `gpus` are NVIDIA's names of GPUs,
    `driver` the version of their driver, `gpu_trouble` the words of nvidia-smi where it found none.
    """

    system: str
    machine: str
    libc: str
    user: str
    uid: int
    home: str
    cache: str
    shell: str
    pythons: tuple[Tool, ...]
    uvs: tuple[Tool, ...]
    gpus: tuple[str, ...]
    driver: str
    gpu_trouble: str
    cores: int
    memory: int
    shm_free: int
    disk_free: int
    lacks: tuple[str, ...]
    headers: tuple[str, ...] = ()
    """The paths of the `pythons` that have Python.h, which extensions in C are compiled with."""
    is_apart: bool = False
    """Whether `cache` was asked for: what uv keeps belongs there, too."""
    names_python: bool = False
    """Whether an interpreter was named, so that `pythons` and `uvs` were not looked for."""


_FACTS = r"""
say() { printf '%s=%s\n' "$1" "$2"; }
printf '\nsky=facts\n'
if command -v nvidia-smi >/dev/null 2>&1; then
  limit=$(command -v timeout) && limit="$limit 20"
  ($limit nvidia-smi --query-gpu=driver_version,name --format=csv,noheader 2>&1 || echo "it ended with status $?") |
    sed 's/^/gpu=/' &
fi
say system "$(uname -s)"
say machine "$(uname -m)"
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
[ -n "$libc" ] || libc=$(ldd --version 2>&1 | tr '\n' ' ' | sed -n 's/.*\(musl\).*Version \([0-9.]*\).*/\1 \2/p')
say libc "$libc"
say user "$(id -un 2>/dev/null)"
say uid "$(id -u)"
say home "$HOME"
say shell "${SHELL:-}"
cache=${SKYWARD_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skyward_nb}
mkdir -p "$cache" 2>/dev/null
if [ -n "$apart" ]; then
  say apart yes
  real=$(cd "$cache" 2>/dev/null && pwd -P) && cache=$real
fi
say cache "$cache"
own=/dev/null
if [ -d "$cache" ] && [ -w "$cache" ] && [ -O "$cache" ]; then
  case $(ls -ld "$cache/." 2>/dev/null) in
  ?????w* | ????????w*) say lacks privacy ;;
  *) own=$cache ;;
  esac
else
  say lacks cache
fi
trial=$own/.run-$$-$(od -An -N8 -tx8 /dev/urandom 2>/dev/null | tr -d ' ')
if printf '#!/bin/sh\nexit 0\n' 2>/dev/null >"$trial"; then
  { chmod 700 "$trial" && "$trial"; } >/dev/null 2>&1 || say lacks exec
  rm -f "$trial"
fi
for tool in tar gzip mkdir mv rm df; do
  command -v $tool >/dev/null 2>&1 || say lacks $tool
done
say cores "$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null)"
say memory "$(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo 2>/dev/null)"
room() { df -Pk "$1" 2>/dev/null | sed -n '2s/.* \([0-9][0-9]*\)  *[0-9]*%.*/\1/p'; }
say shm "$(room /dev/shm)"
at=$cache
while [ ! -d "$at" ] && [ "$at" != / ] && [ -n "$at" ]; do at=$(dirname "$at"); done
say disk "$(room "$at")"
"""
"""What is asked of each machine."""

_TOOLS = r"""
seen=:
python() {
  [ -x "$1" ] || return
  real=$(readlink -f "$1" 2>/dev/null) || real=$1
  case $seen in *":$real:"*) return ;; esac
  seen=$seen$real:
  found=$("$1" -S -E -c 'import os, sys, sysconfig
if sys.implementation.name == "cpython" and not sys.abiflags and sys.maxsize > 2**32:
    headers = os.path.exists(sysconfig.get_path("include") + "/Python.h")
    print("%d.%d.%d" % sys.version_info[:3] + "+h" * headers)' 2>/dev/null </dev/null) || return
  case $found in *+h) found=${found%+h}; say headers "$1" ;; esac
  [ -n "$found" ] && say python "$found $1"
}
uv() {
  [ -x "$1" ] || return
  found=$("$1" --version 2>/dev/null </dev/null) || return
  found=${found#uv }
  say uv "${found%% *} $1"
}
for each in "$own"/uv/*/uv; do uv "$each"; done
places=$PATH:$HOME/.local/bin:$HOME/.cargo/bin:/usr/local/bin:/usr/bin
old=$IFS
IFS=:
set -f
for folder in $places; do
  IFS=$old
  set +f
  case $folder in '' | */shims) continue ;; esac
  uv "$folder/uv"
  for each in "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9] "$folder"/python3; do
    python "$each"
  done
done
IFS=$old
set +f
for folder in "$own"/uv/python/cpython-3* "$HOME"/.local/share/uv/python/cpython-3* "$HOME"/.pyenv/versions/3.* \
  "$HOME"/miniforge3 "$HOME"/mambaforge "$HOME"/miniconda3 "$HOME"/anaconda3 /opt/conda; do
  python "$folder/bin/python3"
done
"""
"""Finds Pythons and copies of uv: each is started, which takes longer than all the rest."""

_END = r"""
wait
say end facts
"""
PROBE = f"{_FACTS}{_TOOLS}{_END}"

_LIMIT = 60.0
_NO_SHELL = {
    "allows sftp connections only": "its sshd lets this user transfer files, but run nothing (ForceCommand internal-sftp in "
    "sshd_config): ask its administrator for a login that runs programs",
    "account is currently not available": "this user has no login shell there (nologin in /etc/passwd): ask the "
    "administrator for one, `sudo usermod --shell /bin/bash NAME`, or log in as another user, user=NAME",
}
"""What is said by what runs in the place of a shell, and what that means."""
_GPU = re.compile(r"\d+\.[\d.]+, \S")
_MOST_WORDS = 300
_NAME = re.compile(r"\$(\w+)", re.ASCII)
_UNSET = re.compile(r"^sky=unset (\w+)$", re.MULTILINE)


async def probe(
    shell: Shell, cache: str | None = None, *, interpreter: str | None = None
) -> MachineFacts:
    """Ask a machine for its facts; raises `HostNotReady` without an answer, and `ShellGone`.

    `cache` is the folder for environments, if one was asked for, as the shell there spells it. Where an `interpreter`
    is named, no other Python is looked for.
    """
    script = f"{_FACTS}say named interpreter\n{_END}" if interpreter else PROBE
    try:
        ran = await shell.run(f"apart=\n{_asked(cache) if cache else ''}{script}", limit=_LIMIT)
    except TimeoutError:
        raise HostNotReady(
            shell.name,
            f"it did not say within {_LIMIT:.0f} s what machine it is: a driver (nvidia-smi) or a disk "
            "there may hang. Log in and see.",
        ) from None
    facts = read_facts(ran.out)
    if facts is None:
        if unset := _UNSET.search(ran.out.decode(errors="replace")):
            why = f"cache={cache}: {unset[1]} is not set there in a shell without login: name the folder by its path"
            raise HostNotReady(shell.name, why)
        said = f"{ran.out.decode(errors='replace')}{ran.err}"
        for words, why in _NO_SHELL.items():
            if words in said:
                raise HostNotReady(shell.name, why, said.strip())
        raise HostNotReady(
            shell.name,
            "its /bin/sh did not say what machine it is. Logging in must give a shell that runs "
            "commands; a startup file there (~/.bashrc, ~/.profile, ~/.cshrc) that exits, starts another "
            f"program or reads its input prevents that: see `ssh {shell.name} uname -a`.",
            "\n".join([ran.out.decode(errors="replace").strip(), ran.err.strip()]).strip(),
        )
    return facts


def _asked(cache: str) -> str:
    """The beginning of a script that sets the folder that was asked for; it ends where a variable of it is not set."""
    folder = f"$HOME{cache[1:]}" if cache.startswith("~/") else cache
    checks = (
        f"[ -n \"${{{name}:-}}\" ] || {{ printf '\\nsky=unset {name}\\n'; exit; }}\n"
        for name in _NAME.findall(folder)
    )
    own = '[ -n "${USER:-}" ] || USER=$(id -un 2>/dev/null)'
    return f'{own}\n{"".join(checks)}SKYWARD_CACHE_DIR="{folder}"\napart=yes\n'


def read_facts(out: bytes) -> MachineFacts | None:
    """The facts in an answer, after any output of a login shell; None if they are incomplete."""
    lines = out.decode(errors="replace").splitlines()
    if "sky=facts" not in lines or "end=facts" not in lines:
        return None
    said: dict[str, list[str]] = {}
    for line in lines[lines.index("sky=facts") + 1 : lines.index("end=facts")]:
        name, _, value = line.partition("=")
        said.setdefault(name, []).append(value)

    def word(name: str) -> str:
        return said.get(name, [""])[0]

    answers = said.get("gpu", ())
    gpus = [line.split(", ", 1) for line in answers if _GPU.match(line)]
    trouble = "" if gpus else " ".join(line.strip() for line in answers if line.strip())
    return MachineFacts(
        system=word("system"),
        machine=word("machine"),
        libc=word("libc"),
        user=word("user"),
        uid=_number(word("uid")),
        home=word("home"),
        cache=word("cache"),
        shell=word("shell"),
        pythons=_tools(said.get("python", ())),
        uvs=_tools(said.get("uv", ())),
        gpus=tuple(name.strip() for _, name in gpus),
        driver=gpus[0][0].strip() if gpus else "",
        gpu_trouble=trouble[:_MOST_WORDS],
        cores=_number(word("cores")) or 1,
        memory=_number(word("memory")) * 1024,
        shm_free=_number(word("shm")) * 1024,
        disk_free=_number(word("disk")) * 1024,
        lacks=tuple(said.get("lacks", ())),
        headers=tuple(said.get("headers", ())),
        is_apart=word("apart") == "yes",
        names_python=word("named") == "interpreter",
    )


def described(facts: MachineFacts) -> Iterator[str]:
    """The facts in a few lines."""
    yield (
        f"{facts.system} {facts.machine}, {facts.libc or 'an unknown C library'}, {facts.cores} cores, "
        f"{spell_size(facts.memory)} of memory"
    )
    yield f"user {facts.user} ({facts.uid}), shell {facts.shell or 'unknown'}, home {facts.home}"
    for name, tools in () if facts.names_python else (("Python", facts.pythons), ("uv", facts.uvs)):
        found = ", ".join(f"{tool.version} ({tool.path})" for tool in tools)
        yield f"{name} {found}" if found else f"no {name}"
    driver = f", driver {facts.driver}" if facts.driver else ""
    trouble = f": {facts.gpu_trouble}" if facts.gpu_trouble else ""
    yield f"{spell_gpus(facts.gpus)}{driver}{trouble}"
    yield (
        f"free: {spell_size(facts.disk_free)} for {facts.cache}, "
        f"{spell_size(facts.shm_free)} in /dev/shm"
    )
    if facts.lacks:
        yield f"it lacks {', '.join(facts.lacks)}"


def spell_gpus(gpus: tuple[str, ...]) -> str:
    """`2 × NVIDIA L4`."""
    kinds = {gpu: gpus.count(gpu) for gpu in gpus}
    return ", ".join(f"{count} × {gpu}" for gpu, count in kinds.items()) or "no GPU"


def _tools(lines: Sequence[str]) -> tuple[Tool, ...]:
    parts = (line.partition(" ") for line in lines)
    return tuple(dict.fromkeys(Tool(version, path) for version, _, path in parts))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
