"""Functions that user code calls on a rank; outside a pool each works as on rank 0 of 1."""
