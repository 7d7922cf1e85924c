"""The view of a run: all that a person should see, as one frozen value. Pure.

`folding.fold(view, *events)` gives the next `RunView`; `terminal.Screen` applies carriage returns, erasures and colours
of printed text; `series` averages points of metrics that are too many to see; `stragglers` names ranks that fall behind.

No clock is read here: events bring their times.
"""
