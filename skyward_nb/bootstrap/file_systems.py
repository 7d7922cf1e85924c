"""File systems of EFS and of FSx for Lustre as folders of a machine of EC2.

EFS goes by its own helper with TLS where the image has it, else by NFS 4.1. Sources:
https://docs.aws.amazon.com/efs/latest/ug/mounting-fs-mount-cmd-general.html,
https://docs.aws.amazon.com/fsx/latest/LustreGuide/mounting-ec2-instance.html.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex

from skyward_nb.bootstrap.apt import LIST, install_packages
from skyward_nb.bootstrap.remote_shell import ScriptResult, Shell
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.volume import Volume

NFS = ("nfs-common",)
"""The Debian packages that NFS takes."""
_PATIENCE = 45
"""Seconds within which a file system is mounted: where nothing answers, mount would wait for minutes or for ever."""
_LIMIT = 2 * (_PATIENCE + 5) + 45.0
_PORTS = {"efs": "2049", "fsx": "988 and 1018 to 1023"}
_NO_CLIENT, _SILENT = 45, 47

# `noresvport` and the sizes: https://docs.aws.amazon.com/efs/latest/ug/mounting-fs-nfs-mount-settings.html.
_MOUNT = r"""
umask 022
PATH=$PATH:/usr/sbin:/sbin
as=
[ "$(id -u)" = 0 ] || as="sudo -n"
$as true || exit 40
if mountpoint -q "$mount"; then
  [ "$(cat "$noted" 2>/dev/null)" = "$source" ] || exit 44
  [ -z "$writes" ] || [ -w "$mount" ] || exit 49
  exit 0
fi
if [ -e "$mount" ] || [ -L "$mount" ]; then
  { [ -d "$mount" ] && [ ! -L "$mount" ] && [ -z "$(ls -A "$mount")" ]; } || exit 44
fi
asked() {
  at=http://169.254.169.254/latest
  token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$at/api/token") || return 1
  curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "$at/meta-data/$1"
}
region=$(asked placement/region)
domain=$(asked services/domain) || domain=amazonaws.com
host=$name.$service.$region.$domain
echo
echo "sky=host $host"
echo "sky=group $(asked security-groups | head -n 1)"
try() { $as timeout -k 5 "$patience" mount -t "$@" "$mount"; }
write=,ro
[ -z "$writes" ] || write=
if [ "$service" = fsx ]; then
  command -v mount.lustre >/dev/null || exit 45
else
  helper=$(command -v mount.efs)
  [ -n "$helper" ] || command -v mount.nfs4 >/dev/null || exit 45
fi
if [ -z "$helper" ]; then
  [ -n "$region" ] || exit 48
  getent hosts "$host" >/dev/null || exit 46
fi
$as mkdir -p "$mount" || exit 41
# Before it is mounted: else the next try would not know its own mount, where this one is cut off.
printf '%s\n' "$source" | $as sh -c 'mkdir -p "${1%/*}" && cat >"$1"' sh "$noted" || exit 41
code=1
if [ "$service" = fsx ]; then
  try lustre -o "relatime,flock$write" "$host@tcp:/$path"
  code=$?
elif [ -n "$helper" ]; then
  # With the role first: who shows none may be let in to read alone.
  if [ -n "$role" ]; then
    try efs -o "tls,iam$write" "$name:/$path"
    code=$?
  fi
  case $code in
  0 | 124 | 137) ;;
  *)
    try efs -o "tls$write" "$name:/$path"
    code=$?
    ;;
  esac
else
  options=nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport
  try nfs4 -o "$options$write" "$host:/$path"
  code=$?
fi
[ "$code" = 0 ] || $as rm -f "$noted"
case $code in
0) ;;
124 | 137) exit 47 ;;
*) exit 42 ;;
esac
[ -z "$writes" ] || [ -w "$mount" ] || exit 49
"""
_UNREACHED = re.compile(r"timed out|No route to host|Connection refused|unreachable", re.IGNORECASE)
_NOT_THERE = re.compile(r"No such file or directory")
_DENIED = re.compile(r"access denied|permission denied", re.IGNORECASE)
_SAID = re.compile(rb"^sky=(host|group) (.*)$", re.MULTILINE)


async def mount(shell: Shell, volume: Volume, *, has_role: bool) -> None:
    """Mount a file system that is not; raises `HostNotReady`. `has_role`: the machine has a role to show EFS."""
    script = _script(volume, has_role=has_role)
    ran = await _run(shell, script)
    if ran.code == _NO_CLIENT and volume.efs:
        listed = await shell.run(LIST, limit=_LIMIT)
        # No distribution of Debian's kind: it says what to install.
        if b"sky=packages" in listed.out:
            await install_packages(shell, NFS, listed.out, lambda _: None)
            ran = await _run(shell, script)
    if ran.code:
        why = _why(volume, ran)
        words = f"{volume.source} cannot be at {volume.mount}: {why}"
        raise HostNotReady(shell.name, words, last_words(ran.err))


async def _run(shell: Shell, script: str) -> ScriptResult:
    try:
        return await shell.run(script, limit=_LIMIT)
    except TimeoutError:
        return ScriptResult(_SILENT, b"", "")


def _script(volume: Volume, *, has_role: bool) -> str:
    at = posixpath.normpath(volume.mount)
    words = {
        "source": volume.source,
        "service": "efs" if volume.efs else "fsx",
        "name": volume.efs or volume.fsx,
        "path": volume.prefix.strip("/"),
        "mount": at,
        "noted": f"/run/skyward/volumes/{hashlib.sha256(at.encode()).hexdigest()[:16]}",
        "writes": "" if volume.read_only else "yes",
        "role": "yes" if has_role else "",
        "helper": "",
        "patience": str(_PATIENCE),
    }
    return "".join(f"{name}={shlex.quote(text)}\n" for name, text in words.items()) + _MOUNT


def _why(volume: Volume, ran: ScriptResult) -> str:
    """Why it was not mounted, and what to do."""
    said = {key.decode(): text.decode(errors="replace") for key, text in _SAID.findall(ran.out)}
    host = said.get("host") or volume.efs or volume.fsx
    kind, label = ("efs", "EFS") if volume.efs else ("fsx", "FSx")
    if ran.code == _SILENT or (ran.code == 42 and _UNREACHED.search(ran.err)):
        own = f"the group {said['group']}" if said.get("group") else "the pool's group"
        return (
            f"nothing answered at {host} within {_PATIENCE} s. The security group of the file system must let in TCP port "
            f"{_PORTS[kind]} from these machines: they are in {own}, which each pool has anew, so let in the range of "
            "their subnet, or give machines a group of yours that it lets in, security_group=sg-…. Its network must be "
            "theirs, too: subnet=subnet-…"
        )
    if ran.code == _NO_CLIENT:
        return _no_client(volume)
    if ran.code == 42 and _DENIED.search(ran.err):
        return (
            f"{label} refuses it. A policy of the file system may ask for TLS or a role: that takes an ami= with "
            "amazon-efs-utils, and instance_profile=NAME with elasticfilesystem:ClientMount"
        )
    if ran.code == 42 and _NOT_THERE.search(ran.err):
        return f"there is no folder /{volume.prefix.strip('/')} in it: make it once, from a machine that has all of it"
    zone = " in the zone of these machines, each of which needs one" if volume.efs else ""
    role = (
        ". Where its policy asks for a role, instance_profile=NAME needs elasticfilesystem:ClientWrite"
        if volume.efs
        else ""
    )
    ways = {
        40: "sudo asks for a password there",
        44: "something else is there already: give another folder",
        46: f"{host} has no address there: is it in this region, has it a mount target{zone}, and does the VPC have "
        "DNS names (enableDnsSupport, enableDnsHostnames)?",
        48: "the machine does not tell its region: is the metadata service off?",
        49: "it is mounted, and the login there may not write to it: make a folder in it that it may write to "
        f"(`chown`), and name that one, or leave :rw out{role}",
    }
    return ways.get(ran.code, "it cannot be mounted")


def _no_client(volume: Volume) -> str:
    if volume.efs:
        return "the image has no client of NFS, and it is not Debian's: add nfs-utils or amazon-efs-utils to an ami= of yours"
    return (
        "the image has no client of Lustre. Make an image that has it, and name that, ami=ami-…: "
        "https://docs.aws.amazon.com/fsx/latest/LustreGuide/install-lustre-client.html says how for each distribution"
    )
