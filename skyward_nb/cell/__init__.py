"""What a cell's text says: its lines, and the names it reads and writes. Pure."""
