"""Reads options, arguments and defaults into the spec of a pool and the options of a run."""
