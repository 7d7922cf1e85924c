"""The keeper: a program of /bin/sh that an engine keeps on each machine of a pool, and the machine behind it.

Engines end what a short command leaves behind, so the agent is the keeper's child. When the agent ends, so does
the keeper, and with it what the engine has given: that is the lease. Before there is an agent, the keeper ends
when nobody has used it for a while.
"""

from __future__ import annotations

import shlex

from skyward_nb.bootstrap.remote_shell import ScriptResult, ShellGone
from skyward_nb.providers.far.exec_line import NOT_READY
from skyward_nb.providers.far.far_machine import FarMachine
from skyward_nb.providers.far.line_protocol import Line

PATIENCE = 90
"""Seconds without a command from a client after which a keeper without an agent ends."""

KEEPER = r"""trap '' USR2
umask 077
keep=$1
mkdir -m 700 "$keep" || exit 73
child=
end() {
  # A signal that came just now ends a wait, too.
  trap '' HUP INT TERM USR2
  [ -z "$child" ] || kill -TERM $child 2>/dev/null
  while [ "$child" ] && kill -0 $child 2>/dev/null; do wait $child 2>/dev/null; done
  exit 143
}
gone() {
  # Its engine may end it just as it ends by itself.
  trap '' HUP INT TERM USR2
  [ -z "$watch" ] || kill $watch 2>/dev/null
  # A script that has just seen env may still leave a word that it is there.
  rm -f "$keep/env"
  rm -rf "$keep" 2>/dev/null || { sleep 1; rm -rf "$keep"; }
}
trap gone EXIT
trap end HUP INT TERM
mkfifo "$keep/go" || exit 73
export -p >"$keep/env.new"
echo $$ >"$keep/pid"
own=$$
(
  trap - EXIT HUP INT TERM USR2
  quiet=0
  while [ "$quiet" -lt "$2" ]; do
    sleep 1
    [ -d "$keep" ] || exit
    quiet=$((quiet + 1))
    for each in "$keep"/at.*; do
      [ -e "$each" ] || continue
      # One that goes on without its client, whose beats leave marks of their own, keeps nothing.
      [ -z "$(find "$each" -mmin +5 2>/dev/null)" ] || continue
      quiet=0
      kill -0 "${each##*.}" 2>/dev/null || rm -f "$each"
    done
    [ ! -e "$keep/begun" ] || quiet=0
  done
  kill -TERM $own
) </dev/null >/dev/null 2>&1 &
watch=$!
exec 3<>"$keep/go"
mv "$keep/env.new" "$keep/env"
while :; do
  read -r script <&3 || continue
  : >"$keep/begun"
  (exec /bin/sh "$script" >"$script.out" 2>"$script.err" </dev/null 3<&-) &
  child=$!
  trap 'kill -USR2 $child 2>/dev/null' USR2
  while :; do
    wait $child
    code=$?
    kill -0 $child 2>/dev/null || break
  done
  # It may have ended just as the notice came, which is what this shell said then.
  trap '' USR2
  wait $child
  last=$?
  [ "$last" = 127 ] || code=$last
  child=
  rm -f "$keep/begun"
  echo $code >"$script.new"
  mv "$script.new" "$script.code"
  [ "$code" != 0 ] || { trap '' HUP INT TERM; exit 0; }
done
"""
"""Arguments: its folder, which it makes, and its patience. A script whose path comes by `go` is its child.

It ends with a script that ends well. TERM ends the child first. USR2 is passed on to it, and is ignored before: so a child
that has no handler yet ignores it, too, and no word that comes by `go` is torn.
"""

_START = """
script={keep}/start.$$
{{ printf 'login_umask=%s\n' "$login_umask"; printf '%s' {program}; }} >"$script" || exit
[ -p {keep}/go ] || {{ echo 'its keeper has ended' >&2; exit 74; }}
echo "$script" >{keep}/go
until [ -e "$script.code" ] || grep -q '^{{.*}}$' "$script.out" 2>/dev/null; do sleep 0.05; done
cat "$script.out"
cat "$script.err" >&2
[ ! -e "$script.code" ] || exit "$(cat "$script.code")"
"""
_END = """
[ -d {keep} ] || exit 0
{now}
while [ -d {keep} ]; do sleep 0.05; done
"""
_NOW = 'kill -TERM "$(cat {keep}/pid)" 2>/dev/null'
_END_LIMIT = 60.0
_FIRST_PATIENCE = 100


def prelude(keep: str) -> str:
    """Run before each script on a machine: it has the keeper's environment, and the keeper waits for its end."""
    place = shlex.quote(keep)
    return f"if {_is_ours(place)} && [ -e {place}/env ]; then . {place}/env; command : >{place}/at.$$; fi 2>/dev/null"


def first(keep: str, patience: int = _FIRST_PATIENCE, why: str = "") -> str:
    """Returns when there is a keeper: what gives a machine may take its time to start a program there.

    After `patience` seconds it says that there is none; `why` may be added to that.
    """
    place = shlex.quote(keep)
    late = shlex.quote(f"its keeper was not started in time{why}")
    return f"""tries=0
until {_is_ours(place)} && [ -e {place}/env ]; do
  tries=$((tries + 1))
  [ "$tries" -lt {10 * patience} ] || {{ echo {late} >&2; exit {NOT_READY}; }}
  sleep 0.1
done
"""


def _is_ours(place: str) -> str:
    """A test that this user has made the folder: its name is known while a job waits, and may be taken in /tmp.

    One look decides. What another user made, or a link, is no folder of a keeper; and what is this user's there
    stays, as nobody else can move it.
    """
    return f'[ -n "$(find {place} -prune -type d -user "$(id -u)" 2>/dev/null)" ]'


class KeptMachine(FarMachine):
    """A machine whose agent is the child of the keeper with the folder `keep` there."""

    keep: str = ""

    def _outside(self) -> Line:
        """The line to where the keeper's end is seen: also outside of what goes with it."""
        return self._line

    async def _begun(self, words: list[str], limit: float) -> ScriptResult:
        """Have the keeper run the program that starts the agent, and stays."""
        program = shlex.quote(self._program(["hold", *words]))
        return await self._line.run(
            _START.format(keep=shlex.quote(self.keep), program=program), limit=limit
        )

    async def release(self) -> str | None:
        """Wait until the keeper, whose agent was told to stop, is gone."""
        keep = shlex.quote(self.keep)
        now = "" if self._is_reached else _NOW.format(keep=keep)
        try:
            ran = await self._outside().run(_END.format(keep=keep, now=now), limit=_END_LIMIT)
            if ran.code:
                self._warn(ran.err.strip())
        except (ShellGone, TimeoutError) as error:
            self._warn(str(error) or "it did not answer in time")
        finally:
            self._store.close()
            await self._line.close()
        return None
