"""What Python sees: results of runs, and the exceptions of ranks as themselves."""
