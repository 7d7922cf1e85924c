"""What of a machine is no part of an image: taken off its disk before EC2 copies that, and put back afterwards.

Agents have ended by then, and have removed the pool's folders. A machine that is made of the image gets keys, a timer
and a first boot of its own by its user data. What is taken off is kept in memory, for a machine that is stopped and
not ended: it is to be logged in to once more. Blocks of files that were deleted earlier may still be on the disk; keys
and credentials are written over. Links are followed, of files and of folders, as long as they lead to places within the
home, which is itself none of these. What lies on a file system that others share (NFS, Lustre, FUSE), or is mounted
within what is taken off, is left alone: it is none of the disk.

The id of the machine: https://www.freedesktop.org/software/systemd/man/latest/machine-id.html.
"""

from __future__ import annotations

from skyward_nb.providers.aws.stopping import AS_ROOT
from skyward_nb.providers.aws.user_data import LEASE, STATE

_ASIDE = "/run/skyward-image"
_UNITS = "/etc/systemd/system"
HISTORIES = (
    ".bash_history", ".zsh_history", ".history", ".local/share/fish/fish_history", ".python_history", ".lesshst", ".viminfo",
    ".ipython/profile_default/history.sqlite",
)  # fmt: skip
"""Files of a home with what was typed."""
CREDENTIALS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/git/credentials", ".git-credentials",
    ".netrc", ".pgpass", ".s3cfg", ".config/rclone", ".docker/config.json", ".config/containers/auth.json", ".kube",
    ".huggingface/token", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle", ".config/wandb",
    ".npmrc", ".pypirc", ".pip", ".config/pip/pip.conf", ".config/uv", ".local/share/uv/credentials", ".condarc",
)  # fmt: skip
"""Files and folders of a home in which programs keep credentials."""
_GONE = (
    '"/tmp/skyward_nb-$uid"', '"/var/tmp/skyward_nb-$uid"', '"$cache"/values-*',
    *(f'"$own/{name}"*' if name.endswith(".sqlite") else f'"$own/{name}"' for name in HISTORIES),
)  # fmt: skip
"""What nobody needs any more: folders of agents, values, histories of shells."""
_KEPT = (
    "/etc/ssh/ssh_host_*", "/var/lib/cloud/instance", "/var/lib/cloud/instances", f"{STATE}/boot", f"{STATE}/terms",
    f"{_UNITS}/skyward-deadman.service", f"{_UNITS}/multi-user.target.wants/skyward-deadman.service",
    *(f'"$own/{name}"' for name in CREDENTIALS),
)  # fmt: skip
"""Keys of logins and of the machine, its first boot and its timer, and what programs keep as credentials."""

_PAUSE = 20
_RENEWALS = 30
"""How often the lease of the machine is renewed, with a pause of so many seconds, until it is as it was."""
TAKE_OUT = f"""{AS_ROOT}'
home=$1 uid=$2 cache=$3
rm -rf {_ASIDE}
mkdir -m 700 {_ASIDE}
cd /
# No agent renews it any more, and nobody can log in meanwhile.
for each in {" ".join(map(str, range(_RENEWALS)))}; do
  [ -d {_ASIDE} ] || break
  touch {LEASE}
  sleep {_PAUSE}
done < /dev/null > /dev/null 2>&1 &
here() {{
  case $(stat -f -c %T "$1" 2> /dev/null) in nfs* | lustre | fuse*) return 1 ;; esac
}}
for own in "$home" /root; do
  real=$(readlink -f "$own")
  for path in {" ".join(_GONE)}; do
    if here "$path"; then
      target=$(readlink -f "$path" || :)
      case $target in "$real"/*) [ ! -f "$target" ] || rm -f "$target" ;; esac
      rm -rf "$path"
    fi
  done
done
linked() {{
  while read -r path; do find "/$path" -xdev -type l -exec readlink -f {{}} + || :; done | while read -r target; do
    case $target in "$real"/*) if [ -e "$target" ] && here "$target"; then echo "${{target#/}}"; fi ;; esac
  done
}}
cd {_ASIDE}
: > list
for own in "$home" /root; do
  real=$(readlink -f "$own")
  for path in {" ".join(_KEPT)}; do
    if {{ [ -e "$path" ] || [ -L "$path" ]; }} && here "$path"; then echo "${{path#/}}"; fi
  done | sort -u > new
  while [ -s new ]; do
    sort -u list new > all
    mv all list
    linked < new | sort -u | comm -13 list - > more
    mv more new
  done
done
cd /
tar --one-file-system -C / -cpf {_ASIDE}/kept.new -T {_ASIDE}/list
mv {_ASIDE}/kept.new {_ASIDE}/kept.tar
if [ -s /etc/machine-id ]; then
  cp /etc/machine-id {_ASIDE}/machine-id
  : > /etc/machine-id
fi
while read -r path; do
  find "/$path" -xdev -type f -exec shred -n 1 {{}} + 2> /dev/null || :
  # It says so where it left what is mounted there.
  rm -rf --one-file-system "/$path" || [ -z "$(find "/$path" -xdev ! -type d)" ]
done < {_ASIDE}/list
sync
if command -v nvidia-smi > /dev/null; then echo sky=driver; fi
[ ! -r /etc/fstab ] || while read -r device mount kind options rest; do
  case $device,$mount,$options in
    "#"* | *,/,* | *,/boot,* | *,/boot/*,* | *,*nofail*) ;;
    *,/*) echo "sky=fstab $mount" ;;
  esac
done < /etc/fstab
' sh "$HOME" "$(id -u)" "${{XDG_CACHE_HOME:-$HOME/.cache}}/skyward_nb"
"""
"""The script that leaves on the disk what an image may have; says `sky=driver` where there is one for NVIDIA's GPUs, and
`sky=fstab` for each place in fstab without which a machine does not boot."""
PUT_BACK = f"""{AS_ROOT}'
[ -d {_ASIDE} ] || exit 0
[ ! -s {_ASIDE}/kept.tar ] || tar -C / -xpf {_ASIDE}/kept.tar
[ ! -s {_ASIDE}/machine-id ] || cat {_ASIDE}/machine-id > /etc/machine-id
rm -rf {_ASIDE}
sync
'"""
"""The script that has the machine as it was."""
