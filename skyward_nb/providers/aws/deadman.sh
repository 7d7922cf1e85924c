#!/bin/sh
# Ends this machine when nobody needs it any more. Powered off, it is terminated, and costs nothing.
#
# It needs no credentials, no network, and no right clock: time is counted since the machine was booted.
#
#   deadman.sh LEASE BOOT IDLE DEADLINE EVERY
#
# LEASE     a file whose time of change changes while somebody needs the machine
# BOOT      seconds that it may take until that happens for the first time
# IDLE      seconds that may pass without a change afterwards
# DEADLINE  the end in any case, in seconds since this was armed; 0: none
# EVERY     seconds between two looks
#
# A machine that was stopped for a later pool has other times in `terms`: BOOT IDLE DEADLINE.
#
# A machine that was made of an image of this one's disk is not ended: its owner has not asked for that. On Nitro it
# is told apart by its id: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/identify_ec2_instances.html.
lease=$1 boot=$2 idle=$3 deadline=$4 every=$5
state=${SKYWARD_DEADMAN_STATE:-/var/lib/skyward}
[ ! -s "$state/terms" ] || read -r boot idle deadline < "$state/terms"

uptime() {
  read -r up rest < /proc/uptime
  echo "${up%.*}"
}

off() {
  echo "skyward: $1; this machine ends"
  # By hand at first, so that what runs may end well; then by force.
  systemctl poweroff 2>/dev/null || poweroff 2>/dev/null || shutdown -h now 2>/dev/null
  sleep 60
  systemctl poweroff --force --force 2>/dev/null || poweroff -f 2>/dev/null
  sleep 10
}

read -r machine rest 2>/dev/null < "${SKYWARD_DEADMAN_MACHINE:-/sys/devices/virtual/dmi/id/board_asset_tag}"
case $machine in
  i-*) ;;
  *) machine=- ;;
esac

seen=$(stat -c '%y' "$lease" 2>/dev/null)
since=$(uptime) patience=$boot

# A boot after the first one: what ran here is gone, and so is who would have renewed the lease.
this=$(cat /proc/sys/kernel/random/boot_id)
mkdir -p "$state"
if [ -s "$state/boot" ]; then
  read -r first armed owner < "$state/boot"
else
  first=$this armed=$(uptime) owner=$machine
  echo "$first $armed $owner" > "$state/boot"
fi
case $machine,${owner:--} in
  -,* | *,- | "$owner,$machine") ;;
  *)
    echo "skyward: this disk is a copy of that of $owner, and this machine is $machine: it is not ended"
    while :; do sleep 3600; done
    ;;
esac

while :; do
  now=$(uptime)
  [ "$first" = "$this" ] || off "it was booted again"
  last=$(stat -c '%y' "$lease" 2>/dev/null)
  if [ "$last" != "$seen" ] && [ -n "$last" ]; then
    seen=$last since=$now patience=$idle
  fi
  [ $((now - since)) -lt "$patience" ] || off "nobody has needed it for $((now - since)) s"
  [ "$deadline" -eq 0 ] || [ $((now - armed)) -lt "$deadline" ] || off "its time is over"
  sleep "$every"
done
