"""Nodes that a Kubernetes cluster gives: one Job for a pool, and `kubectl exec` as the line to each of its pods.

Kubernetes schedules, pulls images, binds GPUs, confines, and deletes what has ended; none of that is done here. The
name of a pool's Job is made of the pool's id, and a record is written before the Job is created, so that a Job whose
answer was lost is found and deleted. Process 1 of each pod is a keeper: the pod ends with its agent. Only `kubectl`
speaks to the cluster: credentials, proxies and protocols are its affair. Nothing listens on a port.
"""
