"""Where machines come from, and a way to run a command on one. Nothing of ranks here."""
