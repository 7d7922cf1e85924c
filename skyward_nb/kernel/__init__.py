"""A kernel of its own, "Python on a pool": what is installed for front ends, and the kernel that they start.

How its cells are run is `notebook/every_cell`, which `%sky on` turns on in any kernel.
"""
