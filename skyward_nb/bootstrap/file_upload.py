"""The script that writes a file on another machine, all or nothing."""

from __future__ import annotations

import errno
import posixpath
import secrets
import shlex

UPLOAD_END = b"end"
"""Follows the file's bytes: without it, a cut line would look like the end of the file."""
_MEANS = {
    "No space left": errno.ENOSPC,
    "quota exceeded": errno.EDQUOT,
    "Permission denied": errno.EACCES,
    "Read-only": errno.EROFS,
    "No such file": errno.ENOENT,
    "nonexistent": errno.ENOENT,
}


def upload_script(path: str, mode: int) -> str:
    """A script that writes its stdin, without `UPLOAD_END`, to a file there, all or nothing."""
    target = shlex.quote(path)
    # Hosts may share the folder: a process's number alone would not tell them apart.
    name = f".{posixpath.basename(path)}.new.{secrets.token_hex(8)}"
    new = shlex.quote(f"{posixpath.dirname(path)}/{name}")
    return (
        f"LC_ALL=C; export LC_ALL; new={new}; trap 'rm -f \"$new\"' EXIT; trap 'exit 1' HUP INT TERM; "
        'cat > "$new" || exit 1; '
        f'test "$(tail -c 3 "$new")" = {UPLOAD_END.decode()} || exit 1; '
        'size=$(wc -c < "$new"); '
        'dd if=/dev/null of="$new" bs=1 seek=$((size - 3)) 2>/dev/null || exit 1; '
        f'chmod {mode:o} "$new" && mv -f "$new" {target}'
    )


def upload_error(path: str, said: str) -> OSError:
    """The shell's error message as an OSError."""
    text = said.strip().rpartition("\n")[2]
    for words, number in _MEANS.items():
        if words in said:
            return OSError(number, text, path)
    return OSError(errno.EIO, text or "it could not be written", path)
