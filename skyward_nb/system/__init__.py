"""The machine that this process runs on: its processes, threads, GPUs and addresses.

A process is known by its id and start time (`ProcessIdentity`), never by its name. `concurrency` runs work in threads
side by side; `awaiting` what goes to its end whoever stops waiting; `nvidia_smi` and `mig_partition` ask the driver.
"""
