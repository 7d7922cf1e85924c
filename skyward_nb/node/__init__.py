"""The processes of a machine: the agent, the forge, and the ranks.

Agent: one per machine and pool, on a unix socket in a 0700 folder. It outlives its client by `idle`
seconds, then ends everything and removes its files. It holds the lock of its folder; a start sweeps
folders with free locks, with the processes whose environment names them.
Forge: imports the modules that plugins name, makes IPython's shell, then only forks. It alone signals
and reaps ranks. Agent and forge adopt orphans, so child processes of cells end, too.
Rank: user code on the main thread of a session of its own; one thread sends text, one frees the main
thread from collectives.

Output of C code and child processes is read from pipes after the rank's events are counted and before
they are read: so printed text keeps its place among them.

No script of `skyward-nb run` runs in a process that ran cells; no process is reused after it. No GPU is cut unasked
or while it is in use; none is reset.
"""
