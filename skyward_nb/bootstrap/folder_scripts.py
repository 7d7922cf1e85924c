"""The beginning of scripts that make a folder: a lock, and a new folder that is renamed into place."""

from __future__ import annotations

LOCK = r"""
folder=$(dirname "$final")
name=$(basename "$final")
here=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || uname -n)
new=$folder/.new-$name.$here.$(od -An -N8 -tx8 /dev/urandom 2>/dev/null | tr -d ' ')$$
locked=
mkdir -p "$folder" || exit 3
lock() {
  exec 9>>"$folder/.lock-$name" || exit 3
  if command -v flock >/dev/null 2>&1; then
    flock -n 9 2>/dev/null && return
    echo "another one makes $final: waiting" >&2
    flock 9 2>/dev/null && return
  fi
  said=
  until mkdir "$folder/.held-$name" 2>/dev/null; do
    [ -d "$folder/.held-$name" ] || exit 3
    read -r pid host <"$folder/.held-$name/by" 2>/dev/null || pid=
    if [ -n "$pid" ] && [ "$host" = "$(uname -n)" ] && ! kill -0 "$pid" 2>/dev/null; then
      rm -rf "$folder/.held-$name"
    else
      # A process of another host cannot be seen here.
      [ -n "$said" ] || echo "process ${pid:-?} on ${host:-another host} makes $final: waiting. If it is gone: rm -r $folder/.held-$name" >&2
      said=1
      sleep 1
    fi
  done
  locked=$folder/.held-$name
  echo "$$ $(uname -n)" >"$locked/by"
}
leave() {
  [ -d "$new" ] && du -sk "$new" 2>/dev/null | sed 's/^\([0-9]*\).*/written=\1/'
  rm -rf "$new"
  [ -z "$locked" ] || rm -rf "$locked"
}
in_place() {
  if [ -d "$final" ]; then rm -rf "$new"; return 0; fi
  mv "$new" "$final" || return
  # Of two hosts that renamed at once, the second one's folder is within that of the first.
  rm -rf "$final/${new##*/}"
}
trap leave EXIT
trap 'exit 129' HUP INT TERM PIPE
lock
rm -rf "$folder/.new-$name.$here".*
find "$folder" -mindepth 1 -maxdepth 1 -name '.new-*' -mtime +1 -exec rm -rf {} +
"""
"""Begins a script that makes the folder `$final`: the rest of it runs under a lock, and makes `$new`.

Several hosts may share the folder, and locks of files may hold for one host alone: so names have the boot and
chance in them, and `in_place` renames `$new` unless another host was first. This host's unfinished folders
of earlier scripts are removed first, others' after a day; `$new`, if it is not renamed, at the end, with its
size in the output.
"""
