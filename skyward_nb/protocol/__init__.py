"""What the notebook, agents and ranks say to one another: commands, events, and their frames."""
