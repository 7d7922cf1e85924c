"""The script of a machine's first boot: for /bin/sh, run as root. Pure.

It starts the dead-man first. Every process of the machine may read the script, so its only secret, the host
key, is changed at the first login.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from skyward_nb.words.spec import PoolSpec

STATE = "/var/lib/skyward"
LEASE = f"{STATE}/lease"
"""The agent touches this file while the machine is needed."""
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
MOST = 16_384
"""The most bytes that EC2 takes. Source: Amazon EC2 User Guide, "Run commands when you launch an EC2 instance"."""
BOOT = 1800.0
"""Seconds from boot to the first renewal of the lease."""
SLACK = 60.0
"""Seconds beyond `idle` that an agent has to end in order before its machine."""
_UNARMED = 60.0
"""Seconds that a machine may be paid for before its own timer starts."""
LEAST = 60.0
"""The least seconds that are paid for. Source: https://aws.amazon.com/ec2/pricing/on-demand/."""
SHORTEST = _UNARMED + LEAST
"""The least seconds that a budget must last: machines may cost that much in any case."""

_DEADMAN = Path(__file__).with_name("deadman.sh")
_SCRIPT = """\
#!/bin/sh
umask 077
user={user}

# If anything below fails, the machine ends: no login would be possible.
ended() {{
  code=$?
  [ "$code" -eq 0 ] || {{ echo "skyward: readying failed ($code)"; systemctl poweroff || poweroff; }}
}}
trap ended EXIT
set -e

mkdir -p {state}
chmod 755 {state}
# These files come from the machine of whose disk the image was made, if it was a pool's.
rm -f {state}/boot {state}/terms
cat > {state}/deadman.sh <<'END_OF_DEADMAN'
{deadman}
END_OF_DEADMAN
: > {lease}
if [ -d /run/systemd/system ]; then
  cat > /etc/systemd/system/skyward-deadman.service <<'END_OF_UNIT'
[Unit]
Description=Ends this machine when nobody needs it any more
DefaultDependencies=no
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh {state}/deadman.sh {terms}
Restart=always
RestartSec=1
OOMScoreAdjust=-1000
[Install]
WantedBy=multi-user.target
END_OF_UNIT
  systemctl daemon-reload
  systemctl enable skyward-deadman.service
  systemctl restart --no-block skyward-deadman.service
else
  setsid /bin/sh {state}/deadman.sh {terms} > {state}/deadman.log 2>&1 < /dev/null &
fi

id "$user" > /dev/null
chown "$user" {lease}
chmod 600 {lease}
home=$(getent passwd "$user" | cut -d : -f 6)
mkdir -p "$home/.ssh"
printf '%s\\n' {authorized} >> "$home/.ssh/authorized_keys"
chmod 700 "$home/.ssh"
chmod 600 "$home/.ssh/authorized_keys"
chown -R "$user" "$home/.ssh"

rm -f /etc/ssh/ssh_host_*
cat > {host_key} <<'END_OF_KEY'
{private}
END_OF_KEY
printf '%s\\n' {public} > {host_key}.pub
chmod 644 {host_key}.pub
systemctl restart ssh 2> /dev/null || systemctl restart sshd
"""


@dataclass(frozen=True)
class LeaseTerms:
    """When a machine ends by itself, in seconds.

    `boot` is the limit of the first renewal, `idle` that since the last one, `deadline` that of its whole life
    (0: none); the dead-man checks them `every` so many seconds.
    """

    boot: float
    idle: float
    deadline: float = 0.0
    every: float = 5.0

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments of the dead-man."""
        times = (self.boot, self.idle, self.deadline)
        return LEASE, *(str(round(each)) for each in times), str(max(1, round(self.every)))


def lease_for(spec: PoolSpec, price: float | None, spent: float = 0.0) -> LeaseTerms:
    """The terms of a pool's machines that cost `price` dollars an hour, after `spent` dollars."""
    ends = [spec.ttl] if spec.ttl else []
    if spec.max_cost is not None and price:
        lasts = (spec.max_cost - spent) / price * 3600
        ends.append(max(lasts - _UNARMED, LEAST))
    return LeaseTerms(boot=BOOT, idle=spec.idle + SLACK, deadline=min(ends, default=0.0))


def script_for(user: str, lease: LeaseTerms, *, authorized: str, private: str, public: str) -> str:
    """The script; keys are in OpenSSH's form."""
    return _SCRIPT.format(
        user=shlex.quote(user),
        state=STATE,
        lease=LEASE,
        deadman=_spare(_DEADMAN.read_text()),
        terms=shlex.join(lease.words),
        authorized=shlex.quote(authorized.strip()),
        host_key=HOST_KEY,
        private=private.strip(),
        public=shlex.quote(public.strip()),
    )


def _spare(script: str) -> str:
    """A script without its comments, as EC2 takes few bytes."""
    first, *lines = script.strip().splitlines()
    return "\n".join([first, *(line for line in lines if not line.lstrip().startswith("#"))])
