"""Places of ranks, and the ranks that they wait for, read from stacks. Pure."""
