"""Displays of a run: under a cell, as a bundle, or as lines in a terminal.

No printed line is neither shown nor counted, and none is in another run's picture (`runtime/event_sink`,
`show/pool_displays`). No thread but the kernel's main thread draws.
"""
