"""The life of a pool: starting it, running cells on it, attaching to it, closing it.

When a rank fails, a time limit is over or the person interrupts: SIGINT to all ranks; a moment later their
collectives are cut; after `grace`, SIGKILL and a new generation. Where one rank's collective was cut, all
are, and the same processes form a new group; so do ranks that issued different numbers of collectives.

One client at a time conducts a pool; others may ask for its status. A client reads each agent's journal
from an offset: a line that was cut, a killed kernel and another notebook are one case. A client that ended
midway may have begun a run on some machines only; `unseen_of` finds such runs.

No checkpoint is taken that lacks a rank's part, or from a folder that others may write to (`resuming`).
"""
