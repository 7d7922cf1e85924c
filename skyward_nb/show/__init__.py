"""Displays of a run: under a cell, as a bundle, or as lines in a terminal."""
