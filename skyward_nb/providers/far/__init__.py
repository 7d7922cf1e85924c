"""Machines reached over a line, whatever it is made of: an SSH connection, or commands that an engine runs there.

A `Line` runs scripts of /bin/sh and opens streams to unix sockets. Over any line, `host_selection` probes
machines, `host_setup` makes them ready, and `FarMachine` is one of a pool. Where an engine ends what a command
leaves behind, a keeper that belongs to the engine runs the agent (`keeper`).
"""
