"""What readies a framework on each rank, one module per framework."""
