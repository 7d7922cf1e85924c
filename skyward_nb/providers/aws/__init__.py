"""Machines of EC2: rented, logged in to like any other host, and ended for certain.

Record first: the pool's record is on disk before each call that makes something, and is removed when all
that it names is gone. Each resource has the pool's name or tag, so a sweep finds it even if EC2's answer
was lost; a launch repeated with its token is the same launch. Failed launches, releases and sweeps all end
in `termination`. Credentials of another account see nothing of a pool: they end nothing, remove no record.

Dead-man: the first thing a machine does at boot is to start a timer that powers it off, and so terminates
it: `idle` after the lease was last touched, at `ttl`, at the end of the budget, at a second boot.

Warm (`warm=`): at a pool's end machines are stopped. `RentalRecord.warmth` says for how long and for which needs,
`used_by` for which pool they run. The one way: up → stopping (timer on, then StopInstances) → stopped (nobody's) →
claimed under a lock as launching (StartInstances, login, timer off) → up; from each of these also → ending. A timer of
EventBridge Scheduler, made before the first machine, ends what is stopped; without it nothing is stopped.

Replacement (`on_preempt=replace`): the next run replaces a reclaimed machine, not the moment of its loss,
so that a run reports on itself alone and nothing is rented for an absent person. Until the new machines are
ready, the record names the old ones.
"""
