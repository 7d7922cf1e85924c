"""Runs from beginning to end, and all that a person is told: ends of runs, lists of pools, costs, defects.

`execution.Execution` runs a cell, call, script or background run on a pool and shapes its end (`run_ending`,
`rank_failures`, `run_notes`). The other modules answer one question each, for notebook and command line alike: which
pools are up (`status`, `found_pools`), what is left (`cleanup`), what it costs (`cost_approval`), why it hangs
(`hang_check`).

Nothing is drawn here (`show/` does that): answers are values and lines of text.
"""
