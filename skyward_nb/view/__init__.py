"""What a person should see of a run, as one value, folded from events. Pure."""
