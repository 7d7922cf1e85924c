"""Users' objects as bytes with a digest, and back.

No value's bytes depend on the present definition of its class; none that comes back changes a class here. With
`trust=values` the client reads no pickle of a rank (`plain_values`, `pickle_scan`).
"""
