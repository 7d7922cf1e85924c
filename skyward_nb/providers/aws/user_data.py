"""What a machine is told to do at its first boot: a script for /bin/sh, run as root. Pure.

The dead-man is armed before all else. What the script says any process of the machine may read, so
nothing in it is secret for longer than until the first login: that changes the host key.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from skyward_nb.words.spec import PoolSpec

STATE = "/var/lib/skyward"
LEASE = f"{STATE}/lease"
"""What the agent touches while somebody needs the machine."""
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
MOST = 16_384
"""Bytes that EC2 takes. Source: Amazon EC2 User Guide, "Run commands when you launch an EC2 instance"."""
BOOT = 1800.0
"""Seconds that a machine may take until an agent on it renews its lease for the first time."""
SLACK = 60.0
"""Seconds beyond `idle` in which an agent ends in order before its machine does."""
_UNARMED = 60.0
"""Seconds that a machine may be paid for before it counts the time until its end."""
LEAST = 60.0
"""Seconds that are paid for in any case. Source: https://aws.amazon.com/ec2/pricing/on-demand/."""
SHORTEST = _UNARMED + LEAST
"""Seconds that a budget has to last for machines: they may cost as much whatever is said."""

_DEADMAN = Path(__file__).with_name("deadman.sh")
_SCRIPT = """\
#!/bin/sh
umask 077
user={user}

# Whatever fails below, this machine does not stay: nobody could log in to it.
ended() {{
  code=$?
  [ "$code" -eq 0 ] || {{ echo "skyward: readying failed ($code)"; systemctl poweroff || poweroff; }}
}}
trap ended EXIT
set -e

mkdir -p {state}
chmod 755 {state}
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
  systemctl enable --now --no-block skyward-deadman.service
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

    `boot` for the first renewal, `idle` since the last one, `deadline` of its whole life (0: none),
    looked at `every` so often.
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
    """When the machines of a pool that costs `price` dollars an hour, and has cost `spent`, end by themselves."""
    ends = [spec.ttl] if spec.ttl else []
    if spec.max_cost is not None and price:
        lasts = (spec.max_cost - spent) / price * 3600
        ends.append(max(lasts - _UNARMED, LEAST))
    return LeaseTerms(boot=BOOT, idle=spec.idle + SLACK, deadline=min(ends, default=0.0))


def script_for(user: str, lease: LeaseTerms, *, authorized: str, private: str, public: str) -> str:
    """The script; keys are as OpenSSH writes them."""
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
    """A script without its comments: there is little room."""
    first, *lines = script.strip().splitlines()
    return "\n".join([first, *(line for line in lines if not line.lstrip().startswith("#"))])
