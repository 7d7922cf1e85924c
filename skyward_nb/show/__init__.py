"""Where a run is shown: under a cell, as a bundle, or as lines in a terminal."""
