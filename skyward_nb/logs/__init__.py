"""What ranks print and machines say, on disk."""
