"""Machines: how they are started, reached and released. It knows nothing of ranks.

A machine has two sockets in its pool's folder: the agent's, for commands and events, and `values.sock`, for
values. A provider opens streams to both; everything above is the same on this machine, on a host and on a
rented machine.

Neither Ray nor SkyPilot is imported here. Cloud credentials never leave this machine.
"""
