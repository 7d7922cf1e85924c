"""Functions that user code calls on a rank, as `sky.rank()`, `sky.shard()`, `sky.checkpoint()`.

Outside a pool each works as on rank 0 of 1, so that code runs anywhere. `instance` knows the rank and its world,
`sync` the collectives of whichever framework has the process group; progress bars of other packages report to the
rank's output.
"""
