"""Output of ranks and words of machines, on disk."""
