"""Nodes of a Ray cluster that is there: a placement group for a pool, and an actor on each of its nodes.

Ray places, binds GPUs and has its autoscaler bring nodes; none of that is done here. A helper process speaks to Ray
(`helper`, by its path, in any Python that has Ray); this process never imports it. The actor (`node_actor`)
keeps a keeper, runs commands and joins streams. When its keeper has ended, it removes the group and itself.
"""
