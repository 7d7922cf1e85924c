"""The working folder of a script, and its copy on machines elsewhere.

Here the folder is read (`scan`, without what `ignoring` leaves out), and results are written (`results`). On a
machine a copy is brought up to date (`machine_folder`) by what has changed (`changes`: pure). A file is sent when
its content here changed since it was last sent; otherwise the machine keeps its own, such as a snapshot that the script
has written over it. What nobody sent is never removed. It knows nothing of pools and lines: `pool/folder_transfer`
moves what is told here.

No file that a script made is written over in its copy of the folder; none is written here unasked.
"""
