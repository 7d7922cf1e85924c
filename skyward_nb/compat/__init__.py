"""Private names of other packages: each in one place, with what it is needed for.

One module for each package, called after it. It gives private names plain ones, says with which
versions they were seen, and what is done where one is missing. It decides nothing, and knows nothing
of pools, ranks and cells: what is done with a name is the caller's. `tests/compat` has a case for each
name, which fails with a sentence when a package has changed.
"""
