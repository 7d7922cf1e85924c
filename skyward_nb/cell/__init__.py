"""The text of a cell: its lines, and the names it reads and writes. Pure."""
