"""What IPython sees: the magics, their options, and the display under a cell."""
