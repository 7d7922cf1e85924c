"""Which names and modules ranks have, and which of them a cell needs.

Three things travel, each under a label and with its own digest: a name with its value; a definition of
the notebook; a circle of definitions. The content of a label is the digest of its whole value, packed
alone; a rank's mark is the content from which its value was made. A label is sent if the two differ. An
object is sent once and has an address on the ranks. A value that a rank bound itself has none: a name of
the notebook that shares an object with it gets a copy, and a note says so.

No name counts as sent that a rank could not bind; no name of a failed cell is lost. No code is run here.
"""
