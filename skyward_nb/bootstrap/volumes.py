"""Buckets of S3 as folders of a machine, by s3fs of its distribution, with the rights of the machine's own role.

No credentials are sent there. Source: https://github.com/s3fs-fuse/s3fs-fuse/blob/master/doc/man/s3fs.1.in.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence

from skyward_nb.bootstrap import file_systems
from skyward_nb.bootstrap.remote_shell import Shell
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.volume import Volume

PACKAGES = ("s3fs",)
"""The Debian packages that it takes."""
_LIMIT = 120.0

# A prefix without keys cannot be mounted: the bucket is, elsewhere, and a link leads to the part of it.
_MOUNT = r"""
umask 022
as=
[ "$(id -u)" = 0 ] || as="sudo -n"
$as true || exit 40
if ! mountpoint -q "$whole"; then
  $as mkdir -p "$whole" || exit 41
  $as s3fs "$bucket" "$whole" -o "$options,uid=$(id -u),gid=$(id -g),logfile=$log" >&2 || exit 41
fi
i=0
until mountpoint -q "$whole" && ls -d "$whole/." >/dev/null 2>&1; do
  i=$((i + 1))
  [ $i -lt 100 ] || { $as tail -n 20 "$log" >&2; exit 42; }
  sleep 0.1
done
if [ -n "$prefix" ] && [ ! -d "$whole/$prefix" ]; then
  [ -n "$writes" ] || exit 43
  mkdir -p "$whole/$prefix" || exit 41
fi
[ -L "$mount" ] || { $as rmdir "$mount" 2>/dev/null; [ ! -e "$mount" ] || exit 44; }
$as mkdir -p "$(dirname "$mount")" && $as ln -sfn "$whole/$prefix" "$mount" || exit 41
"""
_WHY = {
    40: "sudo asks for a password there",
    42: "s3fs does not answer",
    43: "there is nothing below this prefix",
    44: "something else is there already: give another mount=",
}


async def mount(
    shell: Shell, volumes: Sequence[Volume], *, endpoint: str | None, has_role: bool
) -> None:
    """Mount volumes that are not, file systems among them; `has_role` where the machine has a role.

    Without one, buckets must be public.

    `endpoint` is the URL of another server with S3's interface. Raises `HostNotReady`.
    """
    for number, each in enumerate(volumes):
        if not each.bucket:
            await file_systems.mount(shell, each, has_role=has_role)
            continue
        words = _words(each, number, endpoint=endpoint, has_role=has_role)
        script = "".join(f"{name}={shlex.quote(text)}\n" for name, text in words.items())
        ran = await shell.run(script + _MOUNT, limit=_LIMIT)
        if ran.code:
            why = _WHY.get(ran.code, "s3fs cannot mount it")
            raise HostNotReady(
                shell.name,
                f"s3://{each.bucket}/{each.prefix} cannot be at {each.mount}: {why}",
                last_words(ran.err),
            )


def _words(volume: Volume, number: int, *, endpoint: str | None, has_role: bool) -> dict[str, str]:
    options = ["allow_other", "iam_role=auto" if has_role else "public_bucket=1"]
    options += ["ro"] if volume.read_only else []
    options += [f"url={endpoint}", "use_path_request_style"] if endpoint else []
    return {
        "bucket": volume.bucket,
        "whole": f"/mnt/skyward/{number}-{volume.bucket}",
        "prefix": volume.prefix.strip("/"),
        "mount": posixpath.normpath(volume.mount),
        "writes": "" if volume.read_only else "yes",
        "options": ",".join(options),
        "log": f"/var/log/skyward-s3fs-{number}.log",
    }
