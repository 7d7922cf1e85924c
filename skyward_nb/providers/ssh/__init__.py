"""Hosts reached by SSH, as machines of pools. asyncssh is imported when it is first used.

One connection per host, on the loop thread. Scripts run in sessions, one at a time; the agent's sockets are
reached by forwarded streams. Commands never wait behind values: bulk is taken in only while its connection
has little left to send. A connection that does not answer is replaced. Far hosts get up to four connections
for values. Host keys are always checked: known_hosts as OpenSSH reads it, and our own pins for `trust=first`.
"""
