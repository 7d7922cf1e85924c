"""Which rank waits for which, read from the stacks of a run that prints nothing. Pure.

`HangWatch` says when ranks are asked for their stacks, `rank_locations` finds the line of user code and the collective
in a `ThreadStack`, and `hang.sentence` says of a `StalledRun` which ranks wait in which collective, and for which.

No rank is stopped from here: a report is words.
"""
