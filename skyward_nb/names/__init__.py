"""What ranks have of the notebook's names and modules, and what a cell needs sent."""
