"""Messages between the notebook, agents and ranks: commands, events, and their frames."""
