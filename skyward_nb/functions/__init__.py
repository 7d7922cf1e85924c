"""Functions on pools: calls, how they run, what they return.

A call is a run whose code is the call: its names are planned and sent as for a cell, its values end as
those of a cell. Arguments are sent with every call and belong to no name. A pool runs several calls at
once, each on ranks of its own, first come, first served, on the least busy node. A call that breaks its
generation leaves the others their time; the next run begins the new generation alone.

No call's arguments change after its operator returned.
"""
