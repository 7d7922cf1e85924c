"""What user code calls on a rank; outside a pool each of these works on rank 0 of 1."""
