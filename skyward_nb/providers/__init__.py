"""Where machines come from, and how they are started, reached and released. No ranks here.

A machine is two sockets in its pool's folder: the agent's, for commands and events, and `values.sock`, for
values. A provider says how a stream to each is opened; everything above is the same on this machine, on a
host and on a rented machine.
"""
