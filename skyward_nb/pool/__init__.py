"""The life of a pool: starting it, running cells on it, what its machines have, how it looks."""
