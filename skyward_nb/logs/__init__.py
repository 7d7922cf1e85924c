"""Output of ranks and words of machines, as files of the client's machine.

A `Logbook` writes what ranks print, `NodeLog` what machines report while they are readied; `log_reader` reads both as
lines, also while a run goes on or after a crash. `log_files` has the paths and limits: the first and the last parts of
a large output stay, and old runs go.

No error of a disk breaks a run, and no content of a file makes a reader raise.
"""
