"""Which names and modules ranks have, and which of them a cell needs.

Three things travel, each under a label with a digest of its own: a name with its value; a definition of
the notebook; a circle of definitions that refer to one another. A label's content is the digest of all of
it, packed alone; a rank's mark is the content that its own value is newer than. A label is sent where the
two differ. An object is sent once and has an address on the ranks. A value that a rank bound itself has
none: where it shares an object with a name of the notebook, the name gets a copy, and a note says so.
"""
