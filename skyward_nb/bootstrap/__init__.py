"""A machine that one can log in to, made ready: what it is, our package, and an environment."""
