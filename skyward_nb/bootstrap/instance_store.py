"""The NVMe disks of a rented machine, which belong to its host: fast, and empty at its start.

The largest becomes the folder `FOLDER`, where values without room in memory go. A disk is formatted only where nobody
can need what is on it: the machine was rented by this package and has booted once, the disk says that it is one of
EC2's instance store, and has no partition, no signature of anything, no user and no place. AWS's Deep Learning images
join these disks by a service of their own: it is waited for, and `FOLDER` is a folder of what it makes. Sources:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ssd-instance-store.html, and the names of disks there; what that
service makes of them, from people's notes on such machines: none has run this yet.
"""

from __future__ import annotations

from skyward_nb.bootstrap.remote_shell import Shell, ShellGone
from skyward_nb.words.scratch import FOLDER, JOINED

_LIMIT = 120.0
_BOOT = "/var/lib/skyward/boot"
_SYS = "/sys/class/block"
_LINKS = "/dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_"
_UNIT = "dlami-nvme.service"
_PATIENCE = 60
"""Seconds for that service, which boots with the machine."""
_MODEL = "Amazon EC2 NVMe Instance Storage"

# That file has the first boot of a machine that was rented: `aws/deadman.sh` writes it.
_PREPARE = r"""
umask 022
PATH=$PATH:/usr/sbin:/sbin
as=
[ "$(id -u)" = 0 ] || as="sudo -n"
read -r first rest 2>/dev/null <"$boot" || exit 0
[ "$first" = "$(cat /proc/sys/kernel/random/boot_id)" ] || exit 0
for tool in lsblk wipefs blkid mkfs.ext4 mountpoint; do
  command -v "$tool" >/dev/null || exit 0
done
$as true 2>/dev/null || exit 0
is_free() {
  [ -b "$1" ] || return 1
  said=$(cat "$sys/${1##*/}/device/model" 2>/dev/null | sed 's/ *$//')
  [ "$said" = "$model" ] || return 1
  # One line: the disk alone, without partitions or anything that is made of it; and no place.
  [ "$(lsblk -n -r -o NAME "$1")" = "${1##*/}" ] || return 1
  [ -z "$(lsblk -n -r -o MOUNTPOINT "$1" | tr -d ' \n')" ] || return 1
  ! grep -q "^$1 " /proc/swaps || return 1
  signs=$($as wipefs -n "$1") || return 1
  [ -z "$signs" ] || return 1
  $as blkid -p "$1" >/dev/null 2>&1
  [ $? = 2 ]
}
me=$(id -u)
owner() { $as stat -c %u "$1"; }
has_unit() { systemctl cat "$unit" >/dev/null 2>&1; }
# As long as it may still run; its state alone does not tell that a first boot has begun it.
is_coming() {
  case $(systemctl is-active "$unit" 2>/dev/null) in
  failed) return 1 ;;
  inactive)
    case $(systemctl is-system-running 2>/dev/null) in
    initializing | starting) ;;
    *) return 1 ;;
    esac
    ;;
  esac
}
if ! mountpoint -q "$at" && { mountpoint -q "$joined" || has_unit; }; then
  while ! mountpoint -q "$joined"; do
    ls "$links"* >/dev/null 2>&1 || exit 0
    [ "$patience" -gt 0 ] && is_coming || exit 0
    patience=$((patience - 1))
    sleep 1
  done
  own=$joined/skyward-$me
  $as mkdir -m 700 "$own" 2>/dev/null
  { $as test -d "$own" && ! $as test -L "$own"; } || exit 41
  case $(owner "$own") in
  0 | "$me") ;;
  *) exit 41 ;;
  esac
  $as mkdir -p "$at" && $as mount --bind -o nosuid,nodev "$own" "$at" || exit 41
fi
if ! mountpoint -q "$at"; then
  best= most=0
  for link in "$links"*; do
    disk=$(readlink -f "$link")
    size=$(lsblk -n -b -d -o SIZE "$disk" 2>/dev/null) || continue
    [ "$size" -gt "$most" ] || continue
    is_free "$disk" || continue
    best=$disk most=$size
  done
  [ -n "$best" ] || exit 0
  $as mkfs.ext4 -q -m 0 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$best" </dev/null || exit 41
  $as mkdir -p "$at" && $as mount -o noatime,nosuid,nodev "$best" "$at" || exit 41
fi
# A try before this one may have been cut off here.
if [ "$(owner "$at")" != "$me" ]; then
  [ "$(owner "$at")" = 0 ] && [ -z "$($as ls -A "$at" | grep -vx lost+found)" ] || exit 0
  $as chown "$me:$(id -g)" "$at" || exit 41
fi
chmod 700 "$at" && [ "$(owner "$at")" = "$me" ] || exit 41
printf '\nsky=scratch\n'
"""


async def prepare(shell: Shell) -> bool:
    """Whether the machine has `FOLDER` now, on a disk of its own that was free; else all is as before."""
    words = {
        "at": str(FOLDER),
        "boot": _BOOT,
        "sys": _SYS,
        "links": _LINKS,
        "model": _MODEL,
        "unit": _UNIT,
        "joined": str(JOINED),
        "patience": str(_PATIENCE),
    }
    given = "".join(f"{name}='{text}'\n" for name, text in words.items())
    try:
        ran = await shell.run(given + _PREPARE, limit=_LIMIT)
    except (ShellGone, TimeoutError):
        return False  # readying the machine tries again, and says what is wrong with it
    return b"sky=scratch" in ran.out.splitlines()
