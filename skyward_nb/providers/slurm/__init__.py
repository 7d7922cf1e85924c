"""Nodes that Slurm gives: one job for a pool, and `srun` as the line to each of its nodes.

Slurm queues, gangs, binds GPUs, confines and kills; none of that is done here. A pool's id is in the name of its
job, and a record is written before the job is submitted, so that a job whose answer was lost is found and
cancelled. The job's one step is a keeper on each node: the job ends with the agents. Nothing listens on a port.
"""
